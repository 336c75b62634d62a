#include "kdvfs/buckets.hpp"

#include <algorithm>
#include <string>

#include "kdvfs/describe.hpp"

namespace kdvfs {

namespace {

constexpr const char *op = Operation<kdvfs_wte_backward>::name;

// ends[id]: how many of the tokens have an id up to this one
std::vector<std::int32_t> count_up_to(const std::int32_t *ids, std::int64_t M, std::int64_t V) {
  std::vector<std::int32_t> ends(static_cast<std::size_t>(V), 0);
  for (std::int64_t m = 0; m < M; m++) {
    if (ids[m] < 0 || ids[m] >= V) {
      refuse(op, "ids[" + std::to_string(m) + "]", std::to_string(ids[m]), "in [0, V) with V = " + std::to_string(V));
    }
    ends[static_cast<std::size_t>(ids[m])]++;
  }
  for (std::size_t id = 1; id < ends.size(); id++) {
    ends[id] += ends[id - 1];
  }
  return ends;
}

}  // namespace

Buckets make_buckets(const std::int32_t *ids, std::int64_t M, std::int64_t V, std::int64_t C) {
  if (M > INT32_MAX) {
    refuse(op, "M", std::to_string(M), "at most " + std::to_string(INT32_MAX) + ", as tokens are numbered by int32");
  }
  const std::vector<std::int32_t> ends = count_up_to(ids, M, V);
  Buckets made;

  made.order.resize(static_cast<std::size_t>(M));
  std::vector<std::int32_t> next = ends;  // filled from the last token down, which leaves each id's first position
  for (std::int64_t m = M - 1; m >= 0; m--) {
    made.order[static_cast<std::size_t>(--next[static_cast<std::size_t>(ids[m])])] = static_cast<std::int32_t>(m);
  }

  const std::int64_t groups = (C + bucket_channels - 1) / bucket_channels;
  for (std::size_t id = 0; id < ends.size(); id++) {
    const std::int32_t first = next[id], count = ends[id] - first;
    for (std::int64_t group = 0; count > 0 && group < groups; group++) {
      made.buckets.push_back({first, count, static_cast<std::int32_t>(id), static_cast<std::int32_t>(group)});
    }
  }
  std::stable_sort(made.buckets.begin(), made.buckets.end(),
                   [](const kdvfs_bucket &a, const kdvfs_bucket &b) { return a.count > b.count; });
  return made;
}

}  // namespace kdvfs
