// Rows that end inside a pack, and elements one at a time.
#pragma once

#include "kdvfs/pack.cuh"

namespace kdvfs {

// Two bf16 of the value that a maximum or a sum does not see.
constexpr std::uint32_t minus_infinities = 0xff80ff80u, zeros = 0;

// Keeps the first `count` elements of a pack (none if negative); the others become those of `filler`. By masks, whose
// shift stops at 32 by itself: comparisons would take predicate registers, which the loads around need.
__device__ __forceinline__ void keep_first(Pack &pack, int count, std::uint32_t filler) {
  std::uint32_t *const words[4] = {&pack.bits.x, &pack.bits.y, &pack.bits.z, &pack.bits.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const std::uint32_t kept = __funnelshift_lc(0xffffffffu, 0, max(16 * count - 32 * i, 0));
    *words[i] = (*words[i] & kept) | (filler & ~kept);
  }
}

__device__ __forceinline__ float load_one(const void *tensor, std::int64_t element) {
  return low_half(__ldg(static_cast<const unsigned short *>(tensor) + element));
}

__device__ __forceinline__ void store_one(void *tensor, std::int64_t element, float value) {
  __stcs(static_cast<unsigned short *>(tensor) + element, static_cast<unsigned short>(pair_of(value, 0.0f)));
}

}  // namespace kdvfs
