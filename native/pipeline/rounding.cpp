#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

#include "kdvfs/pipeline/rounding.hpp"

namespace kdvfs::pipeline {
namespace {

constexpr std::size_t kTried = 5;  // options that a state tries
constexpr double kStill = 1e-9;    // J: what gains no more is no gain

// Earliest and latest ends, kept up to date while operations become longer; a change is passed on in topological
// order, so each operation is visited once.
struct Floats {
  const Waits& waits;
  std::vector<Ticks> ticks, finish, latest;
  std::priority_queue<int> backward;
  std::priority_queue<int, std::vector<int>, std::greater<>> forward;
  std::vector<bool> waiting;

  Floats(const Waits& given, std::vector<Ticks> durations, Ticks limit)
      : waits(given), ticks(std::move(durations)), waiting(ticks.size()) {
    const std::size_t n = ticks.size();
    finish.assign(n, 0), latest.assign(n, limit);
    for (std::size_t op = 0; op < n; ++op) {
      for (const Wait& wait : waits.before[op]) finish[op] = std::max(finish[op], finish[wait.other] + wait.lag);
      finish[op] += ticks[op];
    }
    for (std::size_t op = n; op-- > 0;)
      for (const Wait& wait : waits.after[op])
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
      for (const Wait& wait : waits.after[tail]) {
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
      for (const Wait& wait : waits.before[head]) {
        const Ticks end = latest[head] - ticks[head] - wait.lag;
        if (end >= latest[wait.other]) continue;
        latest[wait.other] = end;
        if (!waiting[wait.other]) waiting[wait.other] = true, backward.push(wait.other);
      }
    }
  }
};

struct State {
  double cost, worth, distance;  // J; what its ends are worth; their distance from the plan
  std::uint64_t mark;            // of the times that something waits for: of equal ones the best state goes on
};

struct Candidate {
  double rank;
  State state;
  int from, option;
  Ticks end;

  bool operator<(const Candidate& other) const {
    // not by `from`: in which order the best come is the library's
    return std::tie(rank, state.mark, option) < std::tie(other.rank, other.state.mark, other.option);
  }
};

// Candidates, of equal marks the best one alone.
class Distinct {
 public:
  std::vector<Candidate> found;

  void clear(std::size_t most) {
    found.clear();
    std::size_t size = 16;
    while (size < 2 * most) size *= 2;
    slots_.assign(size, -1);
  }

  void add(const Candidate& own) {
    std::size_t at = own.state.mark & (slots_.size() - 1);
    for (; slots_[at] >= 0; at = (at + 1) & (slots_.size() - 1)) {
      Candidate& other = found[static_cast<std::size_t>(slots_[at])];
      if (other.state.mark != own.state.mark) continue;
      if (own < other) other = own;
      return;
    }
    slots_[at] = static_cast<int>(found.size());
    found.push_back(own);
  }

  void keep_best(std::size_t many) {
    if (found.size() <= many) return;
    std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(many), found.end());
    found.resize(many);
  }

 private:
  std::vector<int> slots_;
};

std::uint64_t mixed(int place, Ticks at) {
  std::uint64_t x = static_cast<std::uint64_t>(at) * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(place) + 1;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

Waits::Waits(const Edges& edges, std::size_t operations) : before(operations), after(operations) {
  for (std::size_t e = 0; e < edges.tail.size(); ++e) {
    before[edges.head[e]].push_back({edges.tail[e], edges.lag[e]});
    after[edges.tail[e]].push_back({edges.head[e], edges.lag[e]});
  }
}

Search::Search(const Edges& edges, const Choices& options, const Point& plan, Ticks limit)
    : options_(options),
      limit_(limit),
      waits_(edges, options.first.size() - 1),
      ways_{way(edges, plan, false), way(edges, plan, true)},
      tried_(options.first.size() - 1) {
  std::vector<double> price(tried_.size(), 0);
  for (std::size_t e = 0; e < edges.tail.size(); ++e) price[edges.tail[e]] += plan.flow[e] / kTicksPerSecond;
  for (std::size_t op = 0; op < tried_.size(); ++op) {
    std::vector<std::pair<double, int>> own;
    for (int at = options.first[op]; at < options.first[op + 1]; ++at)
      own.emplace_back(options.cost[at] + price[op] * static_cast<double>(options.ticks[at]), at - options.first[op]);
    if (own.size() > kTried) {  // those that lose least at the flow's price, and the fastest, which always fits
      std::nth_element(own.begin() + 1, own.begin() + kTried, own.end());
      own.resize(kTried);
    }
    for (const auto& [_, option] : own) tried_[op].push_back(option);
  }
}

Search::Way Search::way(const Edges& edges, const Point& plan, bool backwards) const {
  const int n = static_cast<int>(options_.first.size()) - 1;
  Way made{std::vector<int>(n), std::vector<int>(n), std::vector<std::vector<Pull>>(n),
           std::vector<std::vector<Pull>>(n)};
  std::vector<Ticks> begin(plan.begin);
  if (backwards)
    for (int op = 0; op < n; ++op) begin[op] = limit_ - plan.end[op];
  std::iota(made.order.begin(), made.order.end(), 0);
  if (backwards) std::reverse(made.order.begin(), made.order.end());
  std::stable_sort(made.order.begin(), made.order.end(), [&](int a, int b) { return begin[a] < begin[b]; });
  for (int at = 0; at < n; ++at) made.position[made.order[at]] = at;
  double mean = 0;
  for (int op = 0; op < n; ++op) mean += static_cast<double>(plan.end[op] - plan.begin[op]) / n;
  std::vector<double> through(n, 0), in(n, 0);
  const auto ends = [&](std::size_t e) {
    return backwards ? std::pair(edges.head[e], edges.tail[e]) : std::pair(edges.tail[e], edges.head[e]);
  };
  for (std::size_t e = 0; e < edges.tail.size(); ++e) {
    const auto [tail, head] = ends(e);
    through[tail] += plan.flow[e], in[head] += plan.flow[e];
  }
  // what is done last has all the rest of its flow from, or to, the end of the iteration
  for (int op = 0; op < n; ++op) through[op] = std::max(through[op], in[op]);
  const double square = 1 / mean / kTicksPerSecond;
  for (std::size_t e = 0; e < edges.tail.size(); ++e) {
    const auto [tail, head] = ends(e);
    const Pull pull{head, edges.lag[e], begin[head], plan.flow[e] / kTicksPerSecond, square * plan.flow[e],
                    square * through[head]};
    made.after[tail].push_back(pull), made.before[head].push_back(pull);
    made.before[head].back().other = tail;
  }
  return made;
}

Search::Ends Search::ends(const Way& way, const std::vector<int>& choice) const {
  const std::size_t n = choice.size();
  Ends made{std::vector<Ticks>(n, 0), std::vector<Ticks>(n, limit_)};
  for (const int op : way.order) {
    for (const Pull& pull : way.before[op])
      made.earliest[op] = std::max(made.earliest[op], made.earliest[pull.other] + pull.lag);
    made.earliest[op] += ticks(op, choice[op]);
  }
  for (std::size_t at = n; at-- > 0;) {
    const int op = way.order[at];
    for (const Pull& pull : way.after[op])
      made.latest[op] =
          std::min(made.latest[op], made.latest[pull.other] - ticks(pull.other, choice[pull.other]) - pull.lag);
  }
  return made;
}

// Chooses anew what is open among the operations at positions [first, last); false where no state fits.
bool Search::run(const Way& way, int width, double stiff, int first, int last, const std::vector<char>& open,
                 const Ends& ends, std::vector<int>& choice) const {
  const std::size_t count = static_cast<std::size_t>(last - first);
  const auto inside = [&](int op) { return way.position[op] >= first && way.position[op] < last; };
  const auto local = [&](int op) { return static_cast<std::size_t>(way.position[op] - first); };
  // latest ends that leave everything after them its fastest option, or the one that it keeps
  std::vector<Ticks> latest(count, limit_);
  for (std::size_t at = count; at-- > 0;) {
    for (const Pull& pull : way.after[way.order[first + static_cast<int>(at)]]) {
      const int other = pull.other;
      const Ticks own = inside(other) ? latest[local(other)] : ends.latest[other];
      const Ticks taken = ticks(other, inside(other) && open[other] ? 0 : choice[other]);
      latest[at] = std::min(latest[at], own - taken - pull.lag);
    }
  }
  // a state keeps the ends of operations that something inside waits for; places are used again
  std::vector<int> place(count, -1), waiting(count, 0), left, spare;
  int places = 0;
  for (std::size_t at = 0; at < count; ++at)
    for (const Pull& pull : way.after[way.order[first + static_cast<int>(at)]]) waiting[at] += inside(pull.other);
  left = waiting;
  for (std::size_t at = 0; at < count; ++at) {
    for (const Pull& pull : way.before[way.order[first + static_cast<int>(at)]])
      if (inside(pull.other) && --left[local(pull.other)] == 0) spare.push_back(place[local(pull.other)]);
    if (!waiting[at]) continue;
    if (spare.empty()) spare.push_back(places++);
    place[at] = spare.back(), spare.pop_back();
  }

  const std::size_t row = static_cast<std::size_t>(places);
  std::vector<State> states{{0, 0, 0, 0}}, next_states;
  std::vector<Ticks> done(row), next_done;
  // of each step that chose: the state that each state came from, and its option
  struct Step {
    int op;
    std::size_t first;
  };
  std::vector<Step> steps;
  std::vector<std::pair<int, int>> came;
  Distinct distinct;
  std::vector<std::pair<int, Pull>> pulled;
  std::vector<int> over, kept(1);
  for (std::size_t at = 0; at < count; ++at) {
    const int op = way.order[first + static_cast<int>(at)], options = options_.first[op];
    pulled.clear(), over.clear();
    Ticks ready = 0;
    for (const Pull& pull : way.before[op]) {
      if (inside(pull.other)) {
        pulled.emplace_back(place[local(pull.other)], pull);
        if (--waiting[local(pull.other)] == 0) over.push_back(pulled.back().first);
      } else {
        ready = std::max(ready, ends.earliest[pull.other] + pull.lag);
      }
    }
    kept[0] = choice[op];
    const std::vector<int>& tried = open[op] ? tried_[op] : kept;
    const auto each = [&](std::size_t from) {
      const Ticks* own = done.data() + from * row;
      State now = states[from];
      Ticks start = ready;
      for (const auto& [where, pull] : pulled) {
        const Ticks arrives = own[where] + pull.lag;
        start = std::max(start, arrives);
        now.worth -= pull.worth(arrives), now.distance -= pull.of(arrives);
      }
      for (const int gone : over) now.mark -= mixed(gone, own[gone]);
      for (const int option : tried) {
        const Ticks end = start + options_.ticks[options + option];
        if (end > latest[at]) continue;
        State then = now;
        then.cost += options_.cost[options + option];
        for (const Pull& pull : way.after[op])
          then.worth += pull.worth(end + pull.lag), then.distance += pull.of(end + pull.lag);
        if (place[at] >= 0) then.mark += mixed(place[at], end);
        distinct.add({then.cost + then.worth + stiff * then.distance, then, static_cast<int>(from), option, end});
      }
    };
    distinct.clear(states.size() * tried.size());
    for (std::size_t from = 0; from < states.size(); ++from) each(from);
    if (distinct.found.empty()) return false;
    if (tried.size() == 1 && distinct.found.size() == states.size()) {  // nothing to choose: all go on where they are
      for (const Candidate& own : distinct.found) {
        const auto to = static_cast<std::size_t>(own.from);
        if (place[at] >= 0) done[to * row + static_cast<std::size_t>(place[at])] = own.end;
        states[to] = own.state;
      }
      continue;
    }
    distinct.keep_best(static_cast<std::size_t>(width));
    next_states.clear(), next_done.resize(distinct.found.size() * row);
    steps.push_back({op, came.size()});
    for (const Candidate& own : distinct.found) {
      Ticks* to = next_done.data() + next_states.size() * row;
      std::copy_n(done.data() + static_cast<std::size_t>(own.from) * row, row, to);
      if (place[at] >= 0) to[place[at]] = own.end;
      next_states.push_back(own.state);
      came.emplace_back(own.from, own.option);
    }
    states.swap(next_states), done.swap(next_done);
  }
  const auto cheaper = [](const State& a, const State& b) { return a.cost < b.cost; };
  auto at = static_cast<std::size_t>(std::min_element(states.begin(), states.end(), cheaper) - states.begin());
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto& [from, option] = came[step->first + at];
    choice[step->op] = option;
    at = static_cast<std::size_t>(from);
  }
  return true;
}

std::vector<int> Search::beam(const Beam& how, std::vector<int> choice, const std::vector<int>& free) const {
  const std::size_t n = tried_.size();
  std::vector<char> open(n, choice.empty());
  for (const int op : free) open[op] = true;
  choice.resize(n);
  run(ways_[how.backwards], how.width, how.stiff, 0, static_cast<int>(n), open, {}, choice);
  return choice;
}

Search::Found Search::repaired(std::vector<int> choice) const {
  repair(waits_, options_, choice, limit_, false);
  double cost = 0;
  for (std::size_t op = 0; op < choice.size(); ++op) cost += options_.cost[options_.first[op] + choice[op]];
  return {cost, std::move(choice)};
}

std::vector<int> Search::best(int width, std::vector<double> stiff, const std::vector<std::vector<int>>& groups,
                              int span, int rounds, std::vector<int> start) const {
  const int n = static_cast<int>(tried_.size());
  Found best = repaired(std::move(start));
  std::size_t closest = 0;
  for (std::size_t each = 0; each < stiff.size(); ++each) {
    for (const bool backwards : {true, false}) {
      Found own = repaired(beam({width, stiff[each], backwards}, {}, {}));
      if (own.cost < best.cost) best = std::move(own), closest = each;
    }
  }
  std::swap(stiff[0], stiff[closest]);
  Ends ends_of[] = {ends(ways_[0], best.choice), ends(ways_[1], best.choice)};
  int changes = 1;
  std::vector<int> changed(n, changes);                             // when each operation got its option
  std::map<std::tuple<int, std::size_t, bool, double>, int> searched;  // when each search was made
  std::vector<char> open(n, false);
  const int step = std::max(span / 2, 1);
  for (int round = 0, idle = 0; round < rounds && idle < static_cast<int>(stiff.size()); ++round) {
    const double close = stiff[static_cast<std::size_t>(round) % stiff.size()];
    const int before = changes;
    for (int first = 0; first == 0 || first + span - step < n; first += step) {
      const int last = std::min(first + span, n);
      for (std::size_t group = 0; group < groups.size(); ++group) {
        for (const bool backwards : {true, false}) {
          const Way& way = ways_[backwards];
          const int from = backwards ? n - last : first, to = backwards ? n - first : last;
          int newest = 0;
          for (int at = from; at < to; ++at) newest = std::max(newest, changed[way.order[at]]);
          int& seen = searched[{first, group, backwards, close}];
          if (seen >= newest) continue;  // nothing within has changed since; what did outside is not looked at
          seen = changes;
          for (const int op : groups[group]) open[op] = true;
          std::vector<int> choice(best.choice);
          const bool fits = run(way, width, close, from, to, open, ends_of[backwards], choice);
          for (const int op : groups[group]) open[op] = false;
          if (!fits || choice == best.choice) continue;
          Found found = repaired(std::move(choice));
          if (found.cost >= best.cost - kStill) continue;
          ++changes;
          for (int op = 0; op < n; ++op)
            if (found.choice[op] != best.choice[op]) changed[op] = changes;
          best = std::move(found);
          for (const int each : {0, 1}) ends_of[each] = ends(ways_[each], best.choice);
        }
      }
    }
    idle = before == changes ? idle + 1 : 0;
  }
  return best.choice;
}

void repair(const Waits& waits, const Choices& options, std::vector<int>& choice, Ticks limit, bool per_second) {
  std::vector<Ticks> durations;
  for (std::size_t op = 0; op < choice.size(); ++op) durations.push_back(options.ticks[options.first[op] + choice[op]]);
  Floats floats(waits, std::move(durations), limit);
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
