// From global to shared memory past the registers: what the next steps need can be on its way in any amount, whatever
// the compiler does with loads. A thread that copies what itself will read needs no barrier.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kdvfs/pack.cuh"

namespace kdvfs {

// Begins to copy the pack at `element`.
__device__ __forceinline__ void copy_async(Pack &shared, const void *tensor, std::int64_t element) {
  __pipeline_memcpy_async(&shared.bits, as_vector(tensor, element), sizeof(uint4));
}

// The copies that this thread began since the last call are one batch.
__device__ __forceinline__ void end_batch() { __pipeline_commit(); }

// Until all batches of this thread but the last `Newer` have arrived.
template <int Newer>
__device__ __forceinline__ void wait_for_batch() {
  __pipeline_wait_prior(Newer);
  asm volatile("" ::: "memory");  // the primitive alone lets the compiler move reads of shared memory before it
}

}  // namespace kdvfs
