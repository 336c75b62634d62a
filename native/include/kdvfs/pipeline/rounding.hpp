// Whole clocks from the solved linear programme: an option for every operation, none later than promised.
// Knows nothing of Python.
#pragma once

#include <vector>

#include "kdvfs/pipeline/interior.hpp"

namespace kdvfs::pipeline {

struct Beam {
  int width;       // states that are kept after each operation
  double stiff;    // how strongly states are held to the planned times
  bool backwards;  // from the last operation to the first
};

// A beam search for options (positions in their own lists) of at most `limit` ticks in all. Operations are taken in the
// order of `plan`. A state is what was chosen so far; it is as good as its cost, and as the times at which it lets go
// what waits for it: each worth the plan's flow there, less a square of its distance from the plan. Where `choice` is
// not empty, only the operations in `free` choose anew. `limit` must leave all others their choice.
std::vector<int> beam(const Edges& edges, const Choices& options, const Point& plan, Ticks limit, const Beam& how,
                      std::vector<int> choice, const std::vector<int>& free);

// Takes slower options in `choice` while they fit an iteration of `limit`, the one that saves most first (in all, or
// per second).
void repair(const Edges& edges, const Choices& options, std::vector<int>& choice, Ticks limit, bool per_second);

}  // namespace kdvfs::pipeline
