// What the softmax kernels share. All of them compute exp(x) as 2^(x log2 e), one instruction.
#pragma once

#include "kdvfs/pack.cuh"

namespace kdvfs {

constexpr float log2_e = 1.44269504088896341f, ln_2 = 0.693147180559945309f;

// Running maximum of the even elements and of the odd ones, as a pair of bf16: two comparisons an instruction.
__device__ __forceinline__ void raise_to(std::uint32_t &largest, const Pack &pack) {
  const auto larger = [](std::uint32_t x, std::uint32_t y) {
    const __nv_bfloat162 pair =
        __hmax2(reinterpret_cast<const __nv_bfloat162 &>(x), reinterpret_cast<const __nv_bfloat162 &>(y));
    return reinterpret_cast<const std::uint32_t &>(pair);
  };
  largest = larger(largest, larger(larger(pack.bits.x, pack.bits.y), larger(pack.bits.z, pack.bits.w)));
}

__device__ __forceinline__ float larger_half(std::uint32_t pair) { return fmaxf(low_half(pair), high_half(pair)); }

}  // namespace kdvfs
