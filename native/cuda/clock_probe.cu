#include "kdvfs/clock_probe.hpp"

#include "kdvfs/device_time.cuh"

namespace kdvfs {

namespace {

__device__ unsigned sm_id() {
  unsigned id;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
  return id;
}

}  // namespace

namespace {

std::size_t bytes_for(int marks, int blocks) {
  if (marks < 2) {
    refuse("clock probe", "marks", std::to_string(marks), "at least 2");
  }
  return sizeof(ClockReading) * static_cast<std::size_t>(marks) * static_cast<std::size_t>(blocks);
}

}  // namespace

// One thread a block; every multiprocessor gets one or two of the blocks.
// ptx: none - three words
__global__ void clock_probe_kernel(ClockReading *readings) {
  // the two clocks close together: what lies between them is the same at every mark
  const unsigned long long time_ns = global_time_ns();
  const long long cycles = clock64();
  readings[blockIdx.x] = {cycles, time_ns, sm_id()};
}

ClockProbe::ClockProbe(std::shared_ptr<Device> device, int marks)
    : device_(std::move(device)),
      marks_(marks),
      blocks_(2 * device_->limits.sm_count),
      memory_(*device_, bytes_for(marks, blocks_), "clock probe") {}

void ClockProbe::mark() {
  if (marked_ == marks_) {
    refuse("clock probe", "number of marks", std::to_string(marked_ + 1), "at most " + std::to_string(marks_));
  }
  const auto turn = device_->enter();
  clock_probe_kernel<<<blocks_, 1, 0, device_->stream>>>(place(marked_));
  check(cudaGetLastError(), "clock probe");
  marked_++;
}

std::vector<double> ClockProbe::sm_mhz() const {
  std::vector<ClockReading> all(static_cast<std::size_t>(marked_) * static_cast<std::size_t>(blocks_));
  device_->download(all.data(), memory_.data(), all.size() * sizeof(ClockReading), "clock probe");
  return sm_mhz_of(all, static_cast<std::size_t>(marked_), static_cast<std::size_t>(blocks_));
}

}  // namespace kdvfs
