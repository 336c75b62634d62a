// A row of channels in the registers of the threads that share it: whole warps side by side (threadIdx.x), the rows of
// a block one above the other (threadIdx.y). A warp holds neighbouring channels, `Packs` packs a lane.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "kdvfs/launch.hpp"
#include "kdvfs/pack.cuh"
#include "kdvfs/reduce.cuh"

namespace kdvfs {

constexpr int most_row_threads = 512;  // a block's, for launch bounds

// The block for rows of C channels at `packs` packs a thread: about `threads` threads, one row at least.
inline dim3 block_of_rows(const char *op, std::int64_t C, int packs, int threads) {
  const std::int64_t warp_channels = 32 * Pack::size * packs;
  const std::int64_t longest = most_row_threads / 32 * warp_channels;
  require_packs(op, "C", C);
  if (C > longest) {
    refuse(op, "C", std::to_string(C), "at most " + std::to_string(longest));
  }
  const int row_threads = 32 * static_cast<int>((C + warp_channels - 1) / warp_channels);
  return dim3(row_threads, std::max(1, threads / row_threads));
}

// Pack i of a thread begins at channel first_channel + i * channel_step, which may lie past the row's end.
constexpr int channel_step = 32 * Pack::size;
template <int Packs>
__device__ __forceinline__ int first_channel() {
  return static_cast<int>(threadIdx.x / 32 * (Packs * channel_step) + threadIdx.x % 32 * Pack::size);
}

// Sum over the threads of a row, in a fixed order; each of them gets it. `shared` is free again after the row's next
// barrier: take two in turn.
__device__ __forceinline__ float row_sum(float value, float (&shared)[most_row_threads / 32]) {
  float sum = warp_reduce<Sum>(value);
  const unsigned warps = blockDim.x / 32, first = threadIdx.y * warps;
  if (warps == 1) {
    return sum;
  }
  if (threadIdx.x % 32 == 0) {
    shared[first + threadIdx.x / 32] = sum;
  }
  __barrier_sync_count(1 + threadIdx.y, blockDim.x);  // this row's only: the others need not wait
  sum = 0.0f;
#pragma unroll 1
  for (unsigned warp = 0; warp < warps; warp++) {
    sum += shared[first + warp];
  }
  return sum;
}

// The same for two sums at once, at the price of one and a half: each half of a warp carries one of them.
__device__ __forceinline__ void row_sums(float (&sums)[2], float2 (&shared)[most_row_threads / 32]) {
  const bool upper = threadIdx.x % 32 >= 16;
  const float other = __shfl_xor_sync(whole_warp, upper ? sums[0] : sums[1], 16);
  const float sum = warp_reduce<Sum, 16>((upper ? sums[1] : sums[0]) + other);
  const unsigned warps = blockDim.x / 32, first = threadIdx.y * warps;
  if (warps == 1) {
    sums[0] = __shfl_sync(whole_warp, sum, 0);
    sums[1] = __shfl_sync(whole_warp, sum, 16);
    return;
  }
  if (threadIdx.x % 16 == 0) {
    reinterpret_cast<float *>(&shared[first + threadIdx.x / 32])[upper] = sum;
  }
  __barrier_sync_count(1 + threadIdx.y, blockDim.x);
  sums[0] = sums[1] = 0.0f;
#pragma unroll 4
  for (unsigned warp = 0; warp < warps; warp++) {
    const float2 more = shared[first + warp];
    sums[0] += more.x;
    sums[1] += more.y;
  }
}

}  // namespace kdvfs
