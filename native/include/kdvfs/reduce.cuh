// Sums and maxima over a warp and over a block, in a fixed order: the same bits at every launch.
#pragma once

#include <cmath>

namespace kdvfs {

constexpr unsigned whole_warp = 0xffffffffu;

// over groups of `Lanes` neighbouring lanes (a power of two); every lane gets the result
template <int Lanes = 32>
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(whole_warp, value, offset);
  }
  return value;
}

template <int Lanes = 32>
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(whole_warp, value, offset));
  }
  return value;
}

// Over a block of `Warps` warps; every thread gets the result. `shared`: Warps floats, free again after the
// next barrier (use two arrays in turn, or a barrier between two calls).
template <int Warps>
__device__ __forceinline__ float block_sum(float value, float *shared) {
  value = warp_sum(value);
  if constexpr (Warps > 1) {
    if (threadIdx.x % 32 == 0) {
      shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = warp_sum(threadIdx.x % 32 < Warps ? shared[threadIdx.x % 32] : 0.0f);
  }
  return value;
}

template <int Warps>
__device__ __forceinline__ float block_max(float value, float *shared) {
  value = warp_max(value);
  if constexpr (Warps > 1) {
    if (threadIdx.x % 32 == 0) {
      shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = warp_max(threadIdx.x % 32 < Warps ? shared[threadIdx.x % 32] : -INFINITY);
  }
  return value;
}

}  // namespace kdvfs
