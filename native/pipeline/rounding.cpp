#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "kdvfs/pipeline/rounding.hpp"

namespace kdvfs::pipeline {
namespace {

constexpr std::size_t kTried = 8;  // options that a state tries
constexpr std::size_t kSpare = 2;  // of a beam's width: states among which equal ones are looked for

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

// J of an edge at whose head time `at` arrives, beside what the plan's flow says: a square of the distance.
struct Pull {
  int place;  // where a state keeps when the edge's tail is done
  Ticks lag, planned;
  double price, early, late;  // J a tick; J a squared tick

  double worth(Ticks at) const { return price * static_cast<double>(at); }
  double of(Ticks at) const {
    const double distance = static_cast<double>(at - planned);
    return (distance < 0 ? early : late) * distance * distance;
  }
};

struct Candidate {
  double rank, value;  // with and without the distances from the plan
  std::uint64_t mark;  // of the times that something waits for: of equal ones the best state goes on
  int from, option;
  Ticks end;

  bool operator<(const Candidate& other) const {
    return std::tie(rank, from, option) < std::tie(other.rank, other.from, other.option);
  }
};

void keep_best(std::vector<Candidate>& found, std::size_t many) {
  if (found.size() <= many) return;
  std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(many), found.end());
  found.resize(many);
}

std::uint64_t mixed(int place, Ticks at) {
  std::uint64_t x = static_cast<std::uint64_t>(at) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(place) + 1;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

std::vector<int> beam(const Edges& edges, const Choices& options, const Point& plan, Ticks limit, const Beam& how,
                      std::vector<int> choice, const std::vector<int>& free) {
  const int n = static_cast<int>(options.first.size()) - 1;
  std::vector<bool> open(n, choice.empty());
  for (const int op : free) open[op] = true;
  choice.resize(n);
  // backwards, an operation ends where it begins, and waits for what waits for it
  std::vector<Ticks> begin(plan.begin);
  if (how.backwards)
    for (int op = 0; op < n; ++op) begin[op] = limit - plan.end[op];
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  if (how.backwards) std::reverse(order.begin(), order.end());
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return begin[a] < begin[b]; });

  double mean = 0;
  for (int op = 0; op < n; ++op) mean += static_cast<double>(plan.end[op] - plan.begin[op]) / n;
  std::vector<std::vector<int>> before(n), after(n);
  std::vector<double> through(n, 0), in(n, 0);
  const auto ends = [&](std::size_t e) {
    return how.backwards ? std::pair(edges.head[e], edges.tail[e]) : std::pair(edges.tail[e], edges.head[e]);
  };
  for (std::size_t e = 0; e < edges.tail.size(); ++e) {
    const auto [tail, head] = ends(e);
    after[tail].push_back(static_cast<int>(e)), before[head].push_back(static_cast<int>(e));
    through[tail] += plan.flow[e], in[head] += plan.flow[e];
  }
  // what is done last has all the rest of its flow from, or to, the end of the iteration
  for (int op = 0; op < n; ++op) through[op] = std::max(through[op], in[op]);
  // latest ends that leave everything after them its fastest option, or the one that it keeps
  std::vector<Ticks> latest(n, limit);
  for (int at = n; at-- > 0;) {
    const int op = order[at];
    const Ticks last = latest[op] - options.ticks[options.first[op] + (open[op] ? 0 : choice[op])];
    for (const int e : before[op]) {
      Ticks& other = latest[ends(e).first];
      other = std::min(other, last - edges.lag[e]);
    }
  }
  // a state keeps the ends of operations that something waits for; places are used again
  std::vector<int> place(n, -1), waiting(n), spare;
  int places = 0;
  for (int op = 0; op < n; ++op) waiting[op] = static_cast<int>(after[op].size());
  std::vector<int> left(waiting);
  for (const int op : order) {
    for (const int e : before[op])
      if (const int other = ends(e).first; --left[other] == 0) spare.push_back(place[other]);
    if (!waiting[op]) continue;
    if (spare.empty()) spare.push_back(places++);
    place[op] = spare.back(), spare.pop_back();
  }
  const auto pull = [&](int e) {
    const auto [tail, head] = ends(e);
    const double square = how.stiff / mean / kTicksPerSecond;
    return Pull{place[tail], edges.lag[e], begin[head], plan.flow[e] / kTicksPerSecond, square * plan.flow[e],
                square * through[head]};
  };

  struct State {
    double value, distance;
    std::uint64_t mark;
  };
  const std::size_t row = static_cast<std::size_t>(places);
  std::vector<State> states{{0, 0, 0}}, next_states;
  std::vector<Ticks> done(row), next_done;
  // of each step that chose: the state that each state came from, and its option
  struct Step {
    int op;
    std::size_t first;
  };
  std::vector<Step> steps;
  std::vector<std::pair<int, int>> came;
  std::vector<Candidate> found;
  std::vector<std::pair<double, int>> tried;
  std::vector<Pull> pulled, pulls;
  std::vector<int> over;
  for (const int op : order) {
    pulled.clear(), pulls.clear(), over.clear(), tried.clear(), found.clear();
    for (const int e : before[op]) {
      pulled.push_back(pull(e));
      if (const int other = ends(e).first; --waiting[other] == 0) over.push_back(place[other]);
    }
    double price = 0;
    for (const int e : after[op]) pulls.push_back(pull(e)), price += pulls.back().price;
    const int first = options.first[op], many = options.first[op + 1] - first;
    for (int k = 0; k < many; ++k)
      if (open[op] || k == choice[op])
        tried.emplace_back(options.cost[first + k] + price * static_cast<double>(options.ticks[first + k]), k);
    if (tried.size() > kTried) {  // those that lose least at the flow's price, and the fastest, which always fits
      std::nth_element(tried.begin() + 1, tried.begin() + kTried, tried.end());
      tried.resize(kTried);
    }
    for (std::size_t at = 0; at < states.size(); ++at) {
      const Ticks* own = done.data() + at * row;
      State now = states[at];
      Ticks start = 0;
      for (const Pull& each : pulled) {
        const Ticks arrives = own[each.place] + each.lag;
        start = std::max(start, arrives);
        now.value -= each.worth(arrives), now.distance -= each.of(arrives);
      }
      for (const int gone : over) now.mark -= mixed(gone, own[gone]);
      for (const auto& [_, k] : tried) {
        const Ticks end = start + options.ticks[first + k];
        if (end > latest[op]) continue;
        double value = now.value + options.cost[first + k], distance = now.distance;
        for (const Pull& each : pulls) value += each.worth(end + each.lag), distance += each.of(end + each.lag);
        const std::uint64_t mark = place[op] < 0 ? now.mark : now.mark + mixed(place[op], end);
        found.push_back({value + distance, value, mark, static_cast<int>(at), k, end});
      }
    }
    if (tried.size() == 1 && found.size() == states.size()) {  // nothing to choose: every state goes on where it is
      choice[op] = tried.front().second;
      for (std::size_t at = 0; at < states.size(); ++at) {
        if (place[op] >= 0) done[at * row + place[op]] = found[at].end;
        states[at] = {found[at].value, found[at].rank - found[at].value, found[at].mark};
      }
      continue;
    }
    keep_best(found, kSpare * static_cast<std::size_t>(how.width));
    std::sort(found.begin(), found.end(),
              [](const Candidate& a, const Candidate& b) { return a.mark != b.mark ? a.mark < b.mark : a < b; });
    const auto same = [](const Candidate& a, const Candidate& b) { return a.mark == b.mark; };
    found.erase(std::unique(found.begin(), found.end(), same), found.end());
    keep_best(found, static_cast<std::size_t>(how.width));
    next_states.clear(), next_done.resize(found.size() * row);
    steps.push_back({op, came.size()});
    for (const Candidate& each : found) {
      Ticks* own = next_done.data() + next_states.size() * row;
      std::copy_n(done.data() + static_cast<std::size_t>(each.from) * row, row, own);
      if (place[op] >= 0) own[place[op]] = each.end;
      next_states.push_back({each.value, each.rank - each.value, each.mark});
      came.emplace_back(each.from, each.option);
    }
    states.swap(next_states), done.swap(next_done);
  }
  const auto cheaper = [](const State& a, const State& b) { return a.value < b.value; };
  auto at = static_cast<std::size_t>(std::min_element(states.begin(), states.end(), cheaper) - states.begin());
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto& [from, option] = came[step->first + at];
    choice[step->op] = option;
    at = static_cast<std::size_t>(from);
  }
  return choice;
}

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
