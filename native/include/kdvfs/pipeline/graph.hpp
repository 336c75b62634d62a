// Operations of a pipeline, what each may take and what waits for what. Durations in ticks (1 ps), costs in J.
#pragma once

#include <cstdint>
#include <vector>

namespace kdvfs::pipeline {

using Ticks = std::int64_t;

constexpr double kTicksPerSecond = 1e12;

// Lists behind each other: those of operation i are [first[i], first[i + 1]).
struct Choices {
  std::vector<int> first;
  std::vector<Ticks> ticks;   // rising
  std::vector<double> cost;   // J, falling
};

struct Edges {
  std::vector<int> tail, head;  // operations in topological order: tail < head
  std::vector<Ticks> lag;
};

}  // namespace kdvfs::pipeline
