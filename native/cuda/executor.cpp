#include "kdvfs/executor.hpp"

#include "kdvfs/describe.hpp"

namespace kdvfs {

namespace {

// Bytes of shared memory that `function` may ask for at launch. A limit belongs to the function, not to a launch, so it
// is set to the most there is: what one plan needs must not take from another's.
std::size_t open_shared_memory(const void *function, const Limits &limits, const std::string &name) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, function), name);
  const std::size_t most = static_cast<std::size_t>(limits.shared_bytes_per_block) - attributes.sharedSizeBytes;
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(most)), name);
  return most;
}

int blocks_per_sm(const Launch &launch, const std::string &name) {
  int blocks = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &blocks, launch.function, static_cast<int>(launch.block.x * launch.block.y * launch.block.z),
            launch.shared_bytes),
        name);
  return blocks;
}

std::string text(dim3 size) {
  return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
}

// What CUDA would refuse at the first launch.
void require_launchable(const Launch &launch, const Limits &limits, const char *op, const std::string &name) {
  const std::size_t most = open_shared_memory(launch.function, limits, name);
  if (launch.shared_bytes > most) {
    refuse(op, "its shared memory", std::to_string(launch.shared_bytes) + " bytes",
           "at most " + std::to_string(most) + " on this GPU");
  }
  const int resident = blocks_per_sm(launch, name) * limits.sm_count;
  if (resident == 0 || (launch.cooperative && launch.grid.x > static_cast<unsigned>(resident))) {
    refuse(op, "its grid", text(launch.grid), "at most " + std::to_string(resident) + " blocks at once on this GPU");
  }
}

// A launch that depends on what is derived from tensors is checked with the least there can be.
template <typename Args>
void assume_least(Args &) {}
void assume_least(kdvfs_wte_backward &args) { args.bucket_count = 1; }

}  // namespace

template <typename Args>
void Executor<Args>::require(const Device &device, Args args, const Options &options) {
  const char *const op = Operation<Args>::name;
  if (options.pinned || options.algorithm != "heuristic") {
    refuse(op, "algorithm", options.pinned ? "a pinned one" : "'" + options.algorithm + "'",
           "none: only gemm has a choice of algorithms");
  }
  const auto turn = device.enter();
  assume_least(args);
  require_launchable(configure(args, device.limits, options.variant), device.limits, op, op);
}

template <typename Args>
Executor<Args>::Executor(Arena &arena, const Args &args, const Options &options, const std::string &name)
    : device_(*arena.device()), name_(name), launch_(configure(args, device_.limits, options.variant)) {
  const auto turn = device_.enter();
  require_launchable(launch_, device_.limits, Operation<Args>::name, name_);
  if (launch_.scratch_bytes) {
    scratch_ = std::make_unique<Memory>(device_, launch_.scratch_bytes, name_);
    check(cudaMemsetAsync(scratch_->data(), 0, launch_.scratch_bytes, device_.stream), name_ + ": scratch");
  }
}

template <typename Args>
void Executor<Args>::launch(const Args &args) const {
  void *scratch = scratch_ ? scratch_->data() : nullptr;
  // CUDA reads as many arguments as the kernel has: those without scratch take the first only
  void *arguments[] = {const_cast<Args *>(&args), &scratch};
  cudaLaunchAttribute cooperative{};
  cooperative.id = cudaLaunchAttributeCooperative;
  cooperative.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = launch_.grid;
  config.blockDim = launch_.block;
  config.dynamicSmemBytes = launch_.shared_bytes;
  config.stream = device_.stream;
  config.attrs = &cooperative;
  config.numAttrs = launch_.cooperative ? 1 : 0;
  const cudaError_t status = cudaLaunchKernelExC(&config, launch_.function, arguments);
  if (status != cudaSuccess) {  // tested here: building the message at every launch would cost more than the launch
    check(status, name_ + ": launch");
  }
}

template <typename Args>
Facts Executor<Args>::facts() const {
  const auto turn = device_.enter();
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, launch_.function), name_);
  return {{"grid", text(launch_.grid)},
          {"block", text(launch_.block)},
          {"register_per_thread", std::int64_t{attributes.numRegs}},
          {"shared_byte", static_cast<std::int64_t>(attributes.sharedSizeBytes + launch_.shared_bytes)},
          {"scratch_byte", static_cast<std::int64_t>(launch_.scratch_bytes)},
          {"block_per_sm", std::int64_t{blocks_per_sm(launch_, name_)}},
          {"code", "sm_" + std::to_string(attributes.binaryVersion)}};
}

#define KDVFS_INSTANTIATE(op) template class Executor<kdvfs_##op>;
KDVFS_HAND_WRITTEN(KDVFS_INSTANTIATE)
#undef KDVFS_INSTANTIATE

}  // namespace kdvfs
