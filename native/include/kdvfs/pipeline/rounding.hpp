// Whole clocks from the solved linear programme: an option for every operation, none later than promised.
// Knows nothing of Python.
#pragma once

#include <vector>

#include "kdvfs/pipeline/interior.hpp"

namespace kdvfs::pipeline {

struct Wait {
  int other;
  Ticks lag;
};

// What each operation waits for, and what waits for it.
struct Waits {
  std::vector<std::vector<Wait>> before, after;

  Waits(const Edges& edges, std::size_t operations);
};

struct Beam {
  int width;       // states that are kept after each operation
  double stiff;    // how strongly states are held to the planned times
  bool backwards;  // from the last operation to the first
};

// Beam searches for options (positions in their own lists) of at most `limit` ticks in all. Operations are taken in the
// order of `plan`. A state is what was chosen so far; it is as good as its cost, and as the times at which it lets go
// what waits for it: each worth the plan's flow there, less a square of its distance from the plan.
class Search {
 public:
  // options: outlives it.
  Search(const Edges& edges, const Choices& options, const Point& plan, Ticks limit);

  // Where `choice` is not empty, only the operations in `free` choose anew. `limit` must leave all others their choice.
  std::vector<int> beam(const Beam& how, std::vector<int> choice, const std::vector<int>& free) const;

  // The cheapest choice found: `start`, or one of all operations, held to the plan as closely as each of `stiff`,
  // either way. Then one of `groups` chooses anew within `span` operations in turn, while all others keep theirs; this
  // `rounds` times over everything at most, and until no window that has changed gains.
  std::vector<int> best(int width, std::vector<double> stiff, const std::vector<std::vector<int>>& groups, int span,
                        int rounds, std::vector<int> start) const;

 private:
  // An edge, in one direction of time: what it is worth that its head is let go.
  struct Pull {
    int other;
    Ticks lag, planned;
    double price, early, late;  // J a tick; J a squared tick

    double worth(Ticks at) const { return price * static_cast<double>(at); }
    double of(Ticks at) const {
      const double distance = static_cast<double>(at - planned);
      return (distance < 0 ? early : late) * distance * distance;
    }
  };

  // One direction of time. Backwards, an operation ends where it begins, and waits for what waits for it.
  struct Way {
    std::vector<int> order, position;
    std::vector<std::vector<Pull>> before, after;
  };

  // Earliest and latest ends of all operations, in a Way's time, at a choice.
  struct Ends {
    std::vector<Ticks> earliest, latest;
  };

  struct Found {
    double cost;
    std::vector<int> choice;
  };

  Way way(const Edges& edges, const Point& plan, bool backwards) const;
  Ends ends(const Way& way, const std::vector<int>& choice) const;
  bool run(const Way& way, int width, double stiff, int first, int last, const std::vector<char>& open,
           const Ends& ends, std::vector<int>& choice) const;
  Found repaired(std::vector<int> choice) const;
  Ticks ticks(int op, int option) const { return options_.ticks[options_.first[op] + option]; }

  const Choices& options_;
  Ticks limit_;
  Waits waits_;
  Way ways_[2];                          // forwards, backwards
  std::vector<std::vector<int>> tried_;  // by operation, the options that states try
};

// Takes slower options in `choice` while they fit an iteration of `limit`, the one that saves most first (in all, or
// per second).
void repair(const Waits& waits, const Choices& options, std::vector<int>& choice, Ticks limit, bool per_second);

}  // namespace kdvfs::pipeline
