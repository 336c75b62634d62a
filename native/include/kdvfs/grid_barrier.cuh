// Where all blocks of a cooperative launch meet, so that each can go on with what all of them have written.
#pragma once

namespace kdvfs {

// In scratch: zero before a launch, and zero after it.
struct GridBarrier {
  unsigned arrived, left;
};

// Every thread of every block calls. What other blocks wrote before is seen, unless it is read through the read-only
// path (__ldg). Returns a number to hand to `leave_grid` later: its way from L2 is not worth waiting for here.
__device__ __forceinline__ unsigned wait_for_grid(GridBarrier *barrier, unsigned blocks) {
  unsigned left = 0;
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    __threadfence();
    atomicAdd(&barrier->arrived, 1);
    while (*static_cast<volatile unsigned *>(&barrier->arrived) < blocks) {
    }
    __threadfence();
    left = atomicInc(&barrier->left, blocks - 1);  // back to 0 at the last
  }
  __syncthreads();
  return left;
}

// The last block that left has the grid's last word: nobody looks at `arrived` any more.
__device__ __forceinline__ void leave_grid(GridBarrier *barrier, unsigned blocks, unsigned left) {
  if (threadIdx.x == 0 && threadIdx.y == 0 && left == blocks - 1) {
    barrier->arrived = 0;
  }
}

}  // namespace kdvfs
