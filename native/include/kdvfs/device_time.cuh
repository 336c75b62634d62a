// The device's own time: the one clock that goes on, at the same rate, while the multiprocessors' clock changes.
#pragma once

namespace kdvfs {

// Nanoseconds; may move in steps of 1 us.
__device__ __forceinline__ unsigned long long global_time_ns() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

}  // namespace kdvfs
