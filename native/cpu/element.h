/* One element of a tensor, float32 or bf16, read and written as float. For the C reference only: a
 * branch per element is clear, not fast. */
#ifndef KDVFS_CPU_ELEMENT_H
#define KDVFS_CPU_ELEMENT_H

#include <stdint.h>
#include <string.h>

#include "kdvfs/kernels.h"

/* bf16 is the upper half of a float32: widening is exact. */
static inline float float_from_bf16(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Round to nearest, ties to even, as __float2bfloat16_rn does. */
static inline uint16_t bf16_from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    /* a NaN whose payload lies in the lower half only would become infinity: set the quiet bit */
    return (uint16_t)((bits >> 16) | 0x0040u);
  }
  /* just below half of the last kept bit, plus one if that bit is odd: a tie then carries only to even.
   * The carry may run into the exponent, which is how the largest values round to infinity. */
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return (uint16_t)(bits >> 16);
}

static inline float load(const void *tensor, int64_t i, kdvfs_dtype dtype) {
  return dtype == KDVFS_BF16 ? float_from_bf16(((const uint16_t *)tensor)[i]) : ((const float *)tensor)[i];
}

static inline void store(void *tensor, int64_t i, kdvfs_dtype dtype, float value) {
  if (dtype == KDVFS_BF16) {
    ((uint16_t *)tensor)[i] = bf16_from_float(value);
  } else {
    ((float *)tensor)[i] = value;
  }
}

#endif
