/* Stochastic rounding to bf16 by a counter hash, the same bits in C and in CUDA. */
#ifndef KDVFS_ROUNDING_H
#define KDVFS_ROUNDING_H

#include <stdint.h>

#ifdef __CUDACC__
#define KDVFS_BOTH __host__ __device__ static inline
#else
#define KDVFS_BOTH static inline
#endif

/* 16 random bits of (index, seed). Finaliser of a 32-bit mixing hash; source: Chris Wellons, "Prospecting for
 * Hash Functions" (2018), lowbias32. */
KDVFS_BOTH uint32_t kdvfs_random16(uint32_t index, uint32_t seed) {
  uint32_t x = index ^ (seed * 0x9e3779b9u);
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  x ^= x >> 16;
  return x & 0xffffu;
}

/* bf16 bits of a finite float32, given as its bits: up with the probability of the dropped 16 bits. */
KDVFS_BOTH uint16_t kdvfs_round_stochastic(uint32_t bits, uint32_t index, uint32_t seed) {
  return (uint16_t)((bits + kdvfs_random16(index, seed)) >> 16);
}

#endif
