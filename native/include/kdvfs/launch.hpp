// How one hand-written kernel is launched. Each .cu file defines `configure` for its operations, directly under
// the kernel; everything else (arguments, streams, graphs, occupancy) is generic and lives in plan.cpp.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "kdvfs/describe.hpp"

namespace kdvfs {

// What the choice of a launch may depend on.
struct Limits {
  int sm_count = 0;
  int threads_per_sm = 0;
  int shared_bytes_per_block = 0;  // with opt-in
  int shared_bytes_per_sm = 0;
  int registers_per_sm = 0;
  std::size_t l2_bytes = 0;
};

struct Launch {
  // a __global__ function of (const Args args) or (const Args args, void *scratch)
  const void *function = nullptr;
  dim3 grid, block;
  std::size_t shared_bytes = 0;   // dynamic
  std::size_t scratch_bytes = 0;  // zeroed once at setup; a kernel that uses it leaves its counters at zero
  bool cooperative = false;       // all blocks run at once, so that they may wait for each other; else it is refused
};

inline void require_vector(const char *op, const std::string &variant) {
  if (variant != "vector") {
    refuse(op, "variant", "'" + variant + "'", "'vector'");
  }
}

// What CUDA allows along the axes of a grid: x, and each of y and z.
constexpr std::int64_t most_blocks = INT32_MAX, most_blocks_across = 65535;

// Blocks along one axis for `work`, `per_block` of it each. Throws ShapeError where there are too many: a number cut to
// 32 bits would launch, and leave most of the work undone.
inline unsigned blocks_for(const char *op, std::int64_t work, std::int64_t per_block,
                           std::int64_t most = most_blocks) {
  const std::int64_t blocks = work / per_block + (work % per_block != 0);
  if (blocks > most) {
    refuse(op, "its grid", std::to_string(blocks) + " blocks", "at most " + std::to_string(most) + ": a smaller shape");
  }
  return static_cast<unsigned>(blocks);
}

inline void require_at_most(const char *op, const char *name, std::int64_t value, std::int64_t limit) {
  if (value > limit) {
    refuse(op, name, std::to_string(value), "at most " + std::to_string(limit));
  }
}

// Rows of whole 16-byte accesses.
inline void require_packs(const char *op, const char *name, std::int64_t length) {
  if (length % 8 != 0) {
    refuse(op, name, std::to_string(length), "a multiple of 8");
  }
}

// variant: "vector" (default) or, where an operation has it, "scalar".
// Throws ShapeError on a shape or a variant that the kernel cannot take.
#define KDVFS_DECLARE_CONFIGURE(op) \
  Launch configure(const kdvfs_##op &args, const Limits &limits, const std::string &variant);
KDVFS_HAND_WRITTEN(KDVFS_DECLARE_CONFIGURE)
#undef KDVFS_DECLARE_CONFIGURE

}  // namespace kdvfs
