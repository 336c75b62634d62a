// Where a thread begins in a tensor, as an address computed once. Left to itself the compiler computes one beside every
// conditional access: more instructions, and so many predicate registers that loads wait for each other.
#pragma once

#include "kdvfs/pack.cuh"

namespace kdvfs {

__device__ __forceinline__ const void *address_of(const void *tensor, std::int64_t element) {
  const void *address = as_vector(tensor, element);
  asm("" : "+l"(address));  // opaque: it cannot be computed again
  return address;
}

__device__ __forceinline__ void *address_of(void *tensor, std::int64_t element) {
  return const_cast<void *>(address_of(static_cast<const void *>(tensor), element));
}

}  // namespace kdvfs
