#include "kdvfs/stamper.hpp"

#include <algorithm>
#include <atomic>
#include <string>

#include "kdvfs/device_time.cuh"

namespace kdvfs {

// In the host's memory: what host and stamping block tell each other.
struct StampControl {
  volatile std::int64_t mark, stop;  // by the host
  volatile std::int64_t count;       // by the device: stamps written
};

struct StampArgs {
  Stamp *stamps;
  StampControl *control;
  const uint4 *from;                     // what is read
  volatile unsigned long long *counted;  // bytes read by each block but the first
  volatile unsigned *ended;
  unsigned *sums;  // of what each thread has read: what nobody uses is not read
  std::int64_t packs;
  std::int64_t room, step_ns;
};

namespace {

constexpr char op[] = "stamper";
constexpr int threads = 512;
constexpr int in_flight = 4;  // 16-byte loads of one thread
constexpr int spin_cycles = 1000;
constexpr std::int64_t most_stamps = 1 << 24;

// The first warp of the first block.
__device__ void stamp(const StampArgs &args) {
  const unsigned lane = threadIdx.x;
  unsigned long long next_ns = global_time_ns();
  for (std::int64_t count = 0; count < args.room; count++) {
    unsigned long long bytes = 0;
    for (unsigned block = lane; block + 1 < gridDim.x; block += 32) {
      bytes += args.counted[block];
    }
    for (int distance = 16; distance; distance /= 2) {
      bytes += __shfl_xor_sync(~0u, bytes, distance);
    }
    int stop = 0;
    if (lane == 0) {
      stop = args.control->stop != 0;
      // seen before the time is read: what the host does after it has marked comes after the stamp before this one
      const std::int64_t mark = args.control->mark;
      const unsigned long long time_ns = global_time_ns();
      const long long cycles = clock64();
      args.stamps[count] = {static_cast<std::int64_t>(time_ns), cycles, static_cast<std::int64_t>(bytes), mark};
      __threadfence_system();
      args.control->count = count + 1;
    }
    if (__shfl_sync(~0u, stop, 0)) {
      break;
    }
    // paced by time, so that a gap is a gap; after one the pace begins again
    const unsigned long long now_ns = global_time_ns();
    next_ns = next_ns + args.step_ns > now_ns ? next_ns + args.step_ns : now_ns;
    while (global_time_ns() < next_ns) {
    }
    __syncwarp();
  }
  if (lane == 0) {
    *args.ended = 1;
  }
}

// Past the L1 cache, and through more than the L2 cache holds.
__device__ void read_on(const StampArgs &args) {
  const std::int64_t readers = gridDim.x - 1, own = blockIdx.x - 1;
  const std::int64_t stride = readers * blockDim.x;
  unsigned long long bytes = 0;
  unsigned sum = 0;
  for (std::int64_t pack = own * blockDim.x + threadIdx.x; !*args.ended;) {
#pragma unroll
    for (int k = 0; k < in_flight; k++) {
      const uint4 value = __ldcg(args.from + pack);
      sum ^= value.x ^ value.y ^ value.z ^ value.w;
      pack += stride;
      pack = pack < args.packs ? pack : pack - args.packs;
    }
    bytes += in_flight * sizeof(uint4) * threads;
    if (threadIdx.x == 0) {
      args.counted[own] = bytes;
    }
  }
  args.sums[own * blockDim.x + threadIdx.x] = sum;
}

__device__ void spin(const StampArgs &args) {
  while (threadIdx.x == 0 && !*args.ended) {
    const long long start = clock64();
    while (clock64() - start < spin_cycles) {
    }
  }
}

std::size_t bytes_for(const Device &device, std::int64_t step_ns, std::int64_t room, std::int64_t bytes) {
  if (step_ns < 1000 || step_ns > 1'000'000) {
    refuse(op, "step_ns", std::to_string(step_ns), "1000 to 1000000");
  }
  if (room < 2 || room > most_stamps) {
    refuse(op, "room", std::to_string(room), "2 to " + std::to_string(most_stamps));
  }
  const std::int64_t least = std::int64_t{16} * threads * device.limits.sm_count;
  if (bytes && (bytes < least || bytes % 16 || bytes > std::int64_t{1} << 40)) {
    refuse(op, "byte", std::to_string(bytes), "0, or a multiple of 16 from " + std::to_string(least));
  }
  const auto readers = static_cast<std::size_t>(device.limits.sm_count);
  return static_cast<std::size_t>(bytes) + sizeof(unsigned long long) * (readers + 1) + sizeof(unsigned) * threads * readers;
}

}  // namespace

// ptx: ld.v4
__global__ void __launch_bounds__(threads) stamper_kernel(const StampArgs args) {
  if (blockIdx.x > 0) {
    args.packs ? read_on(args) : spin(args);
  } else if (threadIdx.x < 32) {
    stamp(args);
  }
}

Stamper::Stamper(std::shared_ptr<Device> device, std::int64_t step_ns, std::int64_t room, std::int64_t bytes)
    : device_(std::move(device)),
      step_ns_(step_ns),
      room_(room),
      bytes_(bytes),
      memory_(*device_, bytes_for(*device_, step_ns, room, bytes), op) {
  const auto turn = device_->enter();
  const auto flags = cudaHostAllocMapped;
  check(cudaHostAlloc(reinterpret_cast<void **>(&control_), sizeof *control_, flags), op);
  if (const cudaError_t status = cudaHostAlloc(reinterpret_cast<void **>(&stamps_), room * sizeof *stamps_, flags);
      status != cudaSuccess) {
    cudaFreeHost(control_);
    check(status, op);
  }
  control_->stop = control_->count = control_->mark = 0;
}

Stamper::~Stamper() {
  control_->stop = 1;
  const auto turn = device_->enter();
  cudaStreamSynchronize(device_->stream);
  cudaFreeHost(stamps_);
  cudaFreeHost(control_);
}

void Stamper::start() {
  stop();
  const auto turn = device_->enter();
  auto *const data = static_cast<char *>(memory_.data());
  auto *const counted = reinterpret_cast<unsigned long long *>(data + bytes_);
  const int readers = device_->limits.sm_count;
  check(cudaMemsetAsync(counted, 0, sizeof *counted * (readers + 1), device_->stream), op);
  control_->stop = control_->count = control_->mark = 0;
  const StampArgs args{stamps_,
                       control_,
                       reinterpret_cast<const uint4 *>(data),
                       counted,
                       reinterpret_cast<unsigned *>(counted + readers),
                       reinterpret_cast<unsigned *>(counted + readers + 1),
                       bytes_ / static_cast<std::int64_t>(sizeof(uint4)),
                       room_,
                       step_ns_};
  stamper_kernel<<<1 + readers, threads, 0, device_->stream>>>(args);
  check(cudaGetLastError(), op);
}

void Stamper::mark(std::int64_t number) { control_->mark = number; }

std::vector<Stamp> Stamper::stamps(std::int64_t first) const {
  const std::int64_t count = control_->count;
  std::atomic_thread_fence(std::memory_order_acquire);  // those are whole
  first = std::clamp(first < 0 ? first + count : first, std::int64_t{0}, count);
  return {stamps_ + first, stamps_ + count};
}

void Stamper::stop() {
  control_->stop = 1;
  device_->synchronize();
}

}  // namespace kdvfs
