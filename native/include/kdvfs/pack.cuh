// Eight bf16 in 16 bytes, the widest access of one thread, in the cache flavours that the kernels choose from:
// what is read once or written for the far future should not push out what is reused.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kdvfs/kernels.h"

namespace kdvfs {

struct alignas(16) Pack {
  static constexpr int size = 8;  // elements
  uint4 bits;
};

__device__ __forceinline__ const uint4 *as_vector(const void *tensor, std::int64_t element) {
  return reinterpret_cast<const uint4 *>(static_cast<const __nv_bfloat16 *>(tensor) + element);
}

__device__ __forceinline__ uint4 *as_vector(void *tensor, std::int64_t element) {
  return reinterpret_cast<uint4 *>(static_cast<__nv_bfloat16 *>(tensor) + element);
}

// `element`: index of the first of the eight, a multiple of 8
__device__ __forceinline__ Pack load(const void *tensor, std::int64_t element) {
  return {__ldg(as_vector(tensor, element))};
}

// read once: evicted first
__device__ __forceinline__ Pack load_streaming(const void *tensor, std::int64_t element) {
  return {__ldcs(as_vector(tensor, element))};
}

__device__ __forceinline__ void store(void *tensor, std::int64_t element, Pack pack) {
  // not by assignment: an opaque address is not known to be global
  __stwb(as_vector(tensor, element), pack.bits);
}

// not read again soon: evicted first
__device__ __forceinline__ void store_streaming(void *tensor, std::int64_t element, Pack pack) {
  __stcs(as_vector(tensor, element), pack.bits);
}

// bf16 is the upper half of a float32, so widening is a shift or a mask
__device__ __forceinline__ float low_half(std::uint32_t word) { return __uint_as_float(word << 16); }
__device__ __forceinline__ float high_half(std::uint32_t word) { return __uint_as_float(word & 0xffff0000u); }

__device__ __forceinline__ std::uint32_t pair_of(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t &>(pair);
}

__device__ __forceinline__ void unpack(const Pack &pack, float (&values)[Pack::size]) {
  const std::uint32_t words[4] = {pack.bits.x, pack.bits.y, pack.bits.z, pack.bits.w};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    values[2 * i] = low_half(words[i]);
    values[2 * i + 1] = high_half(words[i]);
  }
}

__device__ __forceinline__ void add_to(float (&sum)[Pack::size], const Pack &pack) {
  float values[Pack::size];
  unpack(pack, values);
#pragma unroll
  for (int i = 0; i < Pack::size; i++) {
    sum[i] += values[i];
  }
}

__device__ __forceinline__ Pack pack_of(const float (&values)[Pack::size]) {
  return {make_uint4(pair_of(values[0], values[1]), pair_of(values[2], values[3]), pair_of(values[4], values[5]),
                     pair_of(values[6], values[7]))};
}

}  // namespace kdvfs
