#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

#include "kdvfs/pipeline/network.hpp"

namespace kdvfs::pipeline {
namespace {

struct Wait {
  int other;
  Ticks lag;
};

using Waits = std::vector<std::vector<Wait>>;

// Earliest and latest ends, kept up to date while operations become longer; a change is passed on in topological
// order, so each operation is visited once.
struct Floats {
  Waits before, after;
  std::vector<Ticks> ticks, finish, latest;
  std::priority_queue<int> backward;
  std::priority_queue<int, std::vector<int>, std::greater<>> forward;
  std::vector<bool> waiting;

  Floats(const Edges& edges, std::vector<Ticks> durations, Ticks limit)
      : before(durations.size()), after(durations.size()), ticks(std::move(durations)), waiting(ticks.size()) {
    const std::size_t n = ticks.size();
    for (std::size_t e = 0; e < edges.tail.size(); ++e) {
      before[edges.head[e]].push_back({edges.tail[e], edges.lag[e]});
      after[edges.tail[e]].push_back({edges.head[e], edges.lag[e]});
    }
    finish.assign(n, 0), latest.assign(n, limit);
    for (std::size_t op = 0; op < n; ++op) {
      for (const Wait& wait : before[op]) finish[op] = std::max(finish[op], finish[wait.other] + wait.lag);
      finish[op] += ticks[op];
    }
    for (std::size_t op = n; op-- > 0;)
      for (const Wait& wait : after[op])
        latest[op] = std::min(latest[op], latest[wait.other] - ticks[wait.other] - wait.lag);
  }

  Ticks room(int op) const { return latest[op] - finish[op]; }

  void lengthen(int op, Ticks by) {
    ticks[op] += by, finish[op] += by;
    forward.push(op);
    while (!forward.empty()) {
      const int tail = forward.top();
      forward.pop();
      waiting[tail] = false;
      for (const Wait& wait : after[tail]) {
        const Ticks end = finish[tail] + wait.lag + ticks[wait.other];
        if (end <= finish[wait.other]) continue;
        finish[wait.other] = end;
        if (!waiting[wait.other]) waiting[wait.other] = true, forward.push(wait.other);
      }
    }
    backward.push(op);
    while (!backward.empty()) {
      const int head = backward.top();
      backward.pop();
      waiting[head] = false;
      for (const Wait& wait : before[head]) {
        const Ticks end = latest[head] - ticks[head] - wait.lag;
        if (end >= latest[wait.other]) continue;
        latest[wait.other] = end;
        if (!waiting[wait.other]) waiting[wait.other] = true, backward.push(wait.other);
      }
    }
  }
};

}  // namespace

void repair(const Edges& edges, const Choices& options, std::vector<int>& choice, Ticks limit, bool per_second) {
  std::vector<Ticks> durations;
  for (std::size_t op = 0; op < choice.size(); ++op) durations.push_back(options.ticks[options.first[op] + choice[op]]);
  Floats floats(edges, std::move(durations), limit);
  using Candidate = std::tuple<double, int, Ticks>;  // what it costs (< 0), operation, how much longer
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> waiting;
  const auto offer = [&](int op) {
    const int at = options.first[op] + choice[op];
    if (at + 1 == options.first[op + 1] || floats.room(op) <= 0) return;
    const Ticks longer = options.ticks[at + 1] - options.ticks[at];
    const double change = options.cost[at + 1] - options.cost[at];
    waiting.emplace(per_second ? change / static_cast<double>(longer) : change, op, longer);
  };
  for (std::size_t op = 0; op < choice.size(); ++op) offer(static_cast<int>(op));
  while (!waiting.empty()) {
    const auto [change, op, longer] = waiting.top();
    waiting.pop();
    if (longer > floats.room(op)) continue;  // room only ever shrinks
    floats.lengthen(op, longer);
    ++choice[op];
    offer(op);
  }
}

}  // namespace kdvfs::pipeline
