// Sums and maxima over a warp and over a block, in a fixed order: the same bits at every launch.
#pragma once

#include <cmath>

namespace kdvfs {

constexpr unsigned whole_warp = 0xffffffffu;

struct Sum {
  static constexpr float nothing = 0.0f;
  __device__ float operator()(float a, float b) const { return a + b; }
};

struct Maximum {
  static constexpr float nothing = -INFINITY;
  __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

// over groups of `Lanes` neighbouring lanes (a power of two); every lane gets the result
template <typename Reduction, int Lanes = 32>
__device__ __forceinline__ float warp_reduce(float value) {
#pragma unroll
  for (int offset = Lanes / 2; offset > 0; offset /= 2) {
    value = Reduction()(value, __shfl_xor_sync(whole_warp, value, offset));
  }
  return value;
}

// Over a block of `Warps` warps; every thread gets the result. `shared`: Warps floats, free again after the
// next barrier (use two arrays in turn, or a barrier between two calls).
template <typename Reduction, int Warps>
__device__ __forceinline__ float block_reduce(float value, float *shared) {
  value = warp_reduce<Reduction>(value);
  if constexpr (Warps > 1) {
    if (threadIdx.x % 32 == 0) {
      shared[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = warp_reduce<Reduction>(threadIdx.x % 32 < Warps ? shared[threadIdx.x % 32] : Reduction::nothing);
  }
  return value;
}

}  // namespace kdvfs
