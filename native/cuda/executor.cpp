#include "kdvfs/executor.hpp"

namespace kdvfs {

template <typename Args>
Executor<Args>::Executor(Arena &arena, const Args &args, const Options &options, const std::string &name)
    : device_(*arena.device()), name_(name), launch_(configure(args, device_.limits, options.variant)) {
  device_.enter();
  if (launch_.shared_bytes > 48 * 1024) {
    // more than this must be asked for; that it is refused is an error, not a reason to run something else
    check(cudaFuncSetAttribute(launch_.function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(launch_.shared_bytes)),
          name_ + ": " + std::to_string(launch_.shared_bytes) + " bytes of shared memory");
  }
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
  device_.enter();
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, launch_.function), name_);
  int blocks_per_sm = 0;
  const dim3 block = launch_.block, grid = launch_.grid;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_per_sm, launch_.function,
                                                      static_cast<int>(block.x * block.y * block.z),
                                                      launch_.shared_bytes),
        name_);
  const auto text = [](dim3 size) {
    return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
  };
  return {{"grid", text(grid)},
          {"block", text(block)},
          {"register_per_thread", std::int64_t{attributes.numRegs}},
          {"shared_byte", static_cast<std::int64_t>(attributes.sharedSizeBytes + launch_.shared_bytes)},
          {"scratch_byte", static_cast<std::int64_t>(launch_.scratch_bytes)},
          {"block_per_sm", std::int64_t{blocks_per_sm}},
          {"code", "sm_" + std::to_string(attributes.binaryVersion)}};
}

#define KDVFS_INSTANTIATE(op) template class Executor<kdvfs_##op>;
KDVFS_HAND_WRITTEN(KDVFS_INSTANTIATE)
#undef KDVFS_INSTANTIATE

}  // namespace kdvfs
