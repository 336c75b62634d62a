// Tokens sorted by id, for the gradient of the token table: the tokens of one id meet in one bucket, which sums them
// without atomics and in a fixed order. On the host, once per set of ids.
#pragma once

#include <cstdint>
#include <vector>

#include "kdvfs/kernels.h"

namespace kdvfs {

constexpr std::int64_t bucket_channels = 256;  // of C; the last bucket of an id may have fewer

struct Buckets {
  std::vector<kdvfs_bucket> buckets;  // largest first, so that no long one starts last; then by id and channel group
  std::vector<std::int32_t> order;    // (M) tokens by id, those of one id in the order of m
};

// ids: (M), on the host. Throws ShapeError if one lies outside [0, V).
Buckets make_buckets(const std::int32_t *ids, std::int64_t M, std::int64_t V, std::int64_t C);

}  // namespace kdvfs
