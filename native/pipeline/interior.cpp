#include "kdvfs/pipeline/interior.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

namespace kdvfs::pipeline {
namespace {

// iterations at most; so many without progress end a solve, so many its single precision
constexpr int kMostIterations = 150, kStalled = 25, kRough = 4;
constexpr double kLoose = 2e-5;  // of the cost: a tolerance for which single precision is tried
// nothing lies strictly within the fastest schedule: solved this much later, its schedule pulled back to the limit
constexpr double kRoom = 1e-5;
// of the way to where something changes its sign; what products aim at, as a power of the share that they could fall
// to, and at least; what corrects for the products of changes, in mean products at most
constexpr double kStep = 0.95, kCentre = 1.5, kFurthest = 0.1, kMost = 2;
constexpr double kSoon = 30;  // tolerances: as close as that, others may start from here
// the schedule that a solve starts from: so far each operation is from its fastest to its slowest, and so long it waits
// (in mean operations) where T has room for it; the products of what keeps its sign there, in mean waits
constexpr double kSlower = 0.5, kWait = 0.1, kStart = 10;

using Values = std::vector<double>;

bool is_finite(const Values& all) { return std::isfinite(std::accumulate(all.begin(), all.end(), 0.0)); }

}  // namespace

// Values of one solve. Index n is the end of the iteration, n + 1 its begin: both stand still. What keeps its sign in
// the schedule: s (kept beside), t longer than the fastest, h, before; in the flow that belongs to it: f, u, y, rest.
struct Interior::State {
  Values x, t, f, u, y, h;
};

Interior::Interior(Edges edges, Choices hull) : hull_(std::move(hull)) {
  const int n = operations_ = static_cast<int>(hull_.first.size()) - 1;
  std::vector<bool> leaves(n, true);
  entry_.assign(n, true);
  for (std::size_t e = 0; e < edges.tail.size(); ++e) leaves[edges.tail[e]] = false, entry_[edges.head[e]] = false;
  for (int op = 0; op < n; ++op)
    if (leaves[op]) edges.tail.push_back(op), edges.head.push_back(n), edges.lag.push_back(0);
  std::vector<int> order(edges.tail.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return edges.tail[a] < edges.tail[b]; });
  for (const int e : order) {
    edges_.tail.push_back(edges.tail[e]);
    edges_.head.push_back(edges.head[e]);
    edges_.lag.push_back(edges.lag[e]);
  }
  given_ = std::move(order);
  flows_ = edges_.tail.size() + static_cast<std::size_t>(std::count(entry_.begin(), entry_.end(), true));
  out_.assign(n + 1, 0);
  for (const int tail : edges_.tail) ++out_[tail + 1];
  std::partial_sum(out_.begin(), out_.end(), out_.begin());

  std::vector<Ticks> fast(n), slow(n);
  double saved = 0, longer = 0, all = 0;
  for (int op = 0; op < n; ++op) {
    const int a = hull_.first[op], b = hull_.first[op + 1] - 1;
    fast[op] = hull_.ticks[a], slow[op] = hull_.ticks[b];
    saved += hull_.cost[a] - hull_.cost[b];
    longer += static_cast<double>(slow[op] - fast[op]) / kTicksPerSecond;
    all += static_cast<double>(slow[op]) / kTicksPerSecond;
  }
  if (longer > 0) second_ = all / n, watt_ = saved / longer;
  const double unit = second_ * kTicksPerSecond;
  first_.push_back(0);
  for (int op = 0; op < n; ++op) {
    const int a = hull_.first[op], b = hull_.first[op + 1] - 1;
    fast_.push_back(static_cast<double>(fast[op]) / unit);
    const auto price = [&](int k) {  // of the segment that ends at vertex k
      if (k > b) return 0.0;
      const double time = static_cast<double>(hull_.ticks[k] - hull_.ticks[k - 1]) / unit;
      return (hull_.cost[k - 1] - hull_.cost[k]) / (second_ * watt_) / time;
    };
    for (int k = a + 1; k <= b; ++k)
      hinges_.push_back({static_cast<double>(hull_.ticks[k]) / unit, std::max(price(k) - price(k + 1), 1e-9)});
    first_.push_back(static_cast<int>(hinges_.size()));
  }
  begin_ = earliest(fast);
  fastest_ = begin_[n];
  slowest_ = earliest(slow)[n];
  // the matrix over starts: each operation joins itself and what waits for it
  std::vector<std::pair<int, int>> entries;
  for (int op = 0; op < n; ++op) {
    const int from = out_[op], to = out_[op + 1];
    for (int e = from - 1; e < to; ++e)
      for (int g = e; g < to; ++g) {
        const int i = e < from ? op : edges_.head[e], j = g < from ? op : edges_.head[g];
        if (i < n && j < n) entries.emplace_back(std::max(i, j), std::min(i, j));
      }
  }
  entries_ = entries.size();
  matrix_ = std::make_unique<const Cholesky>(n, entries);
}

std::vector<Ticks> Interior::earliest(const std::vector<Ticks>& ticks) const {
  std::vector<Ticks> begin(operations_ + 1, 0);
  for (std::size_t e = 0; e < edges_.tail.size(); ++e)
    begin[edges_.head[e]] =
        std::max(begin[edges_.head[e]], begin[edges_.tail[e]] + ticks[edges_.tail[e]] + edges_.lag[e]);
  return begin;
}

Point Interior::bounds(const std::vector<Ticks>& begin, const Values& flow, Ticks limit) const {
  const int n = operations_, arcs = static_cast<int>(edges_.tail.size());
  Point found{std::vector<Ticks>(n), std::vector<Ticks>(n), 0, 0, 0, 0, flow, nullptr};
  // Above: starts pulled between the earliest and the latest of the fastest durations, then whole ticks made feasible
  // in topological order. Neither breaks an edge, so the limit holds exactly.
  const auto fast = [&](int op) { return hull_.ticks[hull_.first[op]]; };
  std::vector<Ticks> latest(n + 1, limit);
  for (int e = arcs; e-- > 0;) {
    const int tail = edges_.tail[e];
    latest[tail] = std::min(latest[tail], latest[edges_.head[e]] - edges_.lag[e] - fast(tail));
  }
  std::vector<Ticks> least(begin_);
  for (int op = 0; op < n; ++op) {
    found.begin[op] = std::max(least[op], std::min(begin[op], latest[op]));
    for (int e = out_[op]; e < out_[op + 1]; ++e) {
      Ticks& next = least[edges_.head[e]];
      next = std::max(next, found.begin[op] + fast(op) + edges_.lag[e]);
    }
  }
  for (int op = 0; op < n; ++op) {
    Ticks end = limit;
    for (int e = out_[op]; e < out_[op + 1]; ++e)
      end = std::min(end, (edges_.head[e] == n ? limit : found.begin[edges_.head[e]]) - edges_.lag[e]);
    const int a = hull_.first[op], b = hull_.first[op + 1] - 1;
    const Ticks time = std::min(end - found.begin[op], hull_.ticks[b]);
    found.end[op] = found.begin[op] + time;
    int k = a;
    while (k < b && hull_.ticks[k + 1] <= time) ++k;
    found.cost += hull_.cost[k];
    if (k < b)
      found.cost -= (hull_.cost[k] - hull_.cost[k + 1]) * static_cast<double>(time - hull_.ticks[k]) /
                    static_cast<double>(hull_.ticks[k + 1] - hull_.ticks[k]);
  }
  // Below: the flow is made to be conserved, operation by operation; then each takes its best answer to what flows
  // through it.
  Values in(n + 1);
  for (int op = 0, at = arcs; op < n; ++op)
    if (entry_[op]) in[op] = flow[at++];
  for (int op = 0; op < n; ++op) {
    double out = 0;
    for (int e = out_[op]; e < out_[op + 1]; ++e) out += flow[given_[e]];
    for (int e = out_[op]; e < out_[op + 1]; ++e) {
      double& own = found.flow[given_[e]];
      own *= in[op] / out;
      in[edges_.head[e]] += own;
      found.intercept += own * static_cast<double>(edges_.lag[e]) / kTicksPerSecond;
    }
    double best = std::numeric_limits<double>::infinity();
    for (int k = hull_.first[op]; k < hull_.first[op + 1]; ++k)
      best = std::min(best, hull_.cost[k] + in[op] * static_cast<double>(hull_.ticks[k]) / kTicksPerSecond);
    found.intercept += best;
  }
  found.price_w = in[n];
  return found;
}

Point Interior::slowest_point() const {
  Point found{{}, {}, 0, 0, 0, 0, Values(flows_), nullptr};
  std::vector<Ticks> slow(operations_);
  for (int op = 0; op < operations_; ++op) {
    const int last = hull_.first[op + 1] - 1;
    slow[op] = hull_.ticks[last], found.cost += hull_.cost[last];
  }
  found.begin = earliest(slow), found.begin.pop_back();
  found.intercept = found.cost;
  // nothing waits and nothing flows here, but in the mixture with a solution that is faster
  const double unit = second_ * kTicksPerSecond;
  Start start{Values(operations_ + 2), Values(operations_ + 2), Values(flows_)};
  start.x[operations_] = static_cast<double>(slowest_) / unit;
  for (int op = 0; op < operations_; ++op) {
    found.end.push_back(found.begin[op] + slow[op]);
    start.x[op] = static_cast<double>(found.begin[op]) / unit, start.t[op] = static_cast<double>(slow[op]) / unit;
  }
  found.start = std::make_shared<const Start>(std::move(start));
  return found;
}

// A schedule with room everywhere: the fastest, moved towards one that is slower and waits at every edge. Both lie
// halfway between their earliest and their latest begins.
void Interior::roomy(State& at, double T) const {
  const int n = operations_, arcs = static_cast<int>(edges_.tail.size());
  const auto &tail = edges_.tail, &head = edges_.head;
  const double unit = second_ * kTicksPerSecond;
  const auto lag = [&](int e) { return static_cast<double>(edges_.lag[e]) / unit; };
  const auto halfway = [&](double wait) {
    Values early(n + 2), late(n + 2);
    for (int op = 0; op < n; ++op)
      if (entry_[op]) early[op] = wait;
    for (int e = 0; e < arcs; ++e)
      early[head[e]] = std::max(early[head[e]], early[tail[e]] + at.t[tail[e]] + lag(e) + wait);
    std::fill(late.begin(), late.end(), early[n]);
    for (int e = arcs; e-- > 0;)
      late[tail[e]] = std::min(late[tail[e]], late[head[e]] - lag(e) - wait - at.t[tail[e]]);
    for (int i = 0; i <= n; ++i) early[i] = (early[i] + late[i]) / 2;
    return early;
  };
  const Values fastest = halfway(0);
  for (int op = 0; op < n; ++op)
    if (first_[op] < first_[op + 1]) at.t[op] += kSlower * (hinges_[first_[op + 1] - 1].at - fast_[op]);
  at.x = halfway(kWait);
  const double share = std::min(1.0, (T - fastest[n]) / (at.x[n] - fastest[n]));
  for (int op = 0; op < n; ++op) {
    at.x[op] = fastest[op] + share * (at.x[op] - fastest[op]);
    at.t[op] = fast_[op] + share * (at.t[op] - fast_[op]);
  }
  at.x[n] = T;
}

Point Interior::solve(Ticks limit, double tolerance_j, const Start* slower, const Start* faster) const {
  if (limit >= slowest_) return slowest_point();
  const int n = operations_, arcs = static_cast<int>(edges_.tail.size());
  const double unit = second_ * kTicksPerSecond;
  std::vector<int> tail(edges_.tail), head(edges_.head);
  Values lag(arcs);
  for (int e = 0; e < arcs; ++e) lag[e] = static_cast<double>(edges_.lag[e]) / unit;
  for (int op = 0; op < n; ++op)
    if (entry_[op]) tail.push_back(n + 1), head.push_back(op), lag.push_back(0);
  const int all = static_cast<int>(tail.size()), hinges = first_[n];
  const auto movable = [&](int op) { return first_[op] < first_[op + 1]; };
  const double T = std::max(static_cast<double>(limit), static_cast<double>(fastest_) * (1 + kRoom)) / unit;

  State at{Values(n + 2), fast_, Values(all), Values(n), Values(hinges), Values(hinges)};
  at.t.resize(n + 2);
  const bool is_mixture = slower && faster && slower->x[n] > faster->x[n];  // not where both are as fast as can be
  if (is_mixture) {
    const double share = (slower->x[n] - T) / (slower->x[n] - faster->x[n]);
    const auto mixed = [&](const Values& one, const Values& other, Values& made) {
      for (std::size_t i = 0; i < one.size(); ++i) made[i] = one[i] + share * (other[i] - one[i]);
    };
    mixed(slower->x, faster->x, at.x), mixed(slower->t, faster->t, at.t), mixed(slower->f, faster->f, at.f);
  } else {
    roomy(at, T);
  }
  Values s(all);
  const auto slacks = [&] {
    for (int e = 0; e < all; ++e) s[e] = at.x[head[e]] - at.x[tail[e]] - at.t[tail[e]] - (e < arcs ? lag[e] : 0);
  };
  const auto longer = [&](int op) { return at.t[op] - fast_[op]; };
  const auto before = [&](int op, int k) { return at.h[k] + at.t[op] - hinges_[k].at; };
  const auto rest = [&](int k) { return hinges_[k].weight - at.y[k]; };
  // All products are the same, but of the edges of a mixture, where that is their mean.
  slacks();
  double product = 0;
  for (int e = 0; e < all; ++e) product += is_mixture ? at.f[e] * s[e] / all : kStart * s[e] / all;
  if (!is_mixture)
    for (int e = 0; e < all; ++e) at.f[e] = product / s[e];
  int pairs = all + 2 * hinges;
  for (int op = 0; op < n; ++op) {
    if (movable(op)) at.u[op] = product / longer(op), ++pairs;
    for (int k = first_[op]; k < first_[op + 1]; ++k) {
      const double w = hinges_[k].weight, d = at.t[op] - hinges_[k].at;
      const double root = std::hypot(w * d, 2 * product);
      // y a = (w - y) h with a = h + d, a quadratic equation: of both forms of h the one that subtracts nothing nearly
      // equal
      at.h[k] = (2 * product + (d < 0 ? root - w * d : 4 * product * product / (root + w * d))) / (2 * w);
      at.y[k] = product / (at.h[k] + d);
    }
  }

  Values value(entries_), extra(n), factor;
  // in its place while single precision is enough: half of the room, four fifths of an iteration's time
  std::vector<float> rough;
  bool is_rough = false;

  Values W(all), H(n), D(hinges), q(hinges), g(n), r(all), ds(all), df(all), du(n), dy(hinges), dh(hinges), dx(n + 2),
      dt(n + 2), R(n), rho(n), b(n);
  // towards products of m, corrected for the products of the changes that are there, by `most` of each at most
  const auto direction = [&](double m, double most) {
    const auto second = [most](double change) { return most > 0 ? std::min(std::max(change, -most), most) : 0.0; };
    for (int op = 0; op < n; ++op) b[op] = -R[op], g[op] = -rho[op];
    for (int e = 0; e < all; ++e) {
      r[e] = (m - second(df[e] * ds[e])) / s[e] - at.f[e];
      if (tail[e] < n) g[tail[e]] -= r[e];
    }
    for (int op = 0; op < n; ++op) {
      if (!movable(op)) continue;
      for (int k = first_[op]; k < first_[op + 1]; ++k) {
        const double a = before(op, k), v = rest(k), y = at.y[k], h = at.h[k];
        const double r1 = m - y * a - second(dy[k] * (dh[k] + dt[op])), r2 = m - v * h + second(dy[k] * dh[k]);
        q[k] = (r1 * v - y * r2) * D[k];
        dh[k] = (r1 * h + a * r2) * D[k];  // but for what dt adds
        g[op] += q[k];
      }
      // the change of u likewise
      du[op] = (m - second(du[op] * dt[op])) / longer(op) - at.u[op];
      g[op] += du[op];
    }
    for (int e = 0; e < all; ++e) {
      const double by = r[e] + (tail[e] < n && movable(tail[e]) ? W[e] * g[tail[e]] / H[tail[e]] : 0.0);
      if (head[e] < n) b[head[e]] += by;
      if (tail[e] < n) b[tail[e]] -= by;
    }
    is_rough ? matrix_->solve(rough, b) : matrix_->solve(factor, b);
    std::copy(b.begin(), b.end(), dx.begin());
    for (int op = 0; op < n; ++op) {
      if (!movable(op)) continue;
      double sum = g[op];
      for (int e = out_[op]; e < out_[op + 1]; ++e) sum += W[e] * (dx[head[e]] - dx[op]);
      dt[op] = sum / H[op];
      du[op] -= at.u[op] / longer(op) * dt[op];
      for (int k = first_[op]; k < first_[op + 1]; ++k) {
        const double by = at.y[k] * D[k] * dt[op];
        dy[k] = q[k] - rest(k) * by;
        dh[k] -= at.h[k] * by;
      }
    }
    for (int e = 0; e < all; ++e) {
      ds[e] = dx[head[e]] - dx[tail[e]] - dt[tail[e]];
      df[e] = r[e] - W[e] * ds[e];
    }
  };
  // How far the schedule and the flow may go before something changes its sign. What is each operation's own, u, h and
  // y, does not hold up all others: it stops before it would.
  const auto reach = [&](double most) {
    double primal = most, dual = most;
    const auto least = [](double own, double by, double& so_far) {
      if (own < -by * so_far) so_far = own / -by;
    };
    for (int e = 0; e < all; ++e) least(s[e], ds[e], primal), least(at.f[e], df[e], dual);
    for (int op = 0; op < n; ++op)
      if (movable(op)) least(longer(op), dt[op], primal);
    return std::pair(primal, dual);
  };
  const auto moved = [](double own, double by) { return std::max(own + by, (1 - kStep) * own); };
  const auto moved_y = [&](int k, double by) {
    return std::min(moved(at.y[k], by), hinges_[k].weight - (1 - kStep) * rest(k));
  };
  const auto moved_h = [&](int op, int k, double primal) {
    return std::max(moved(at.h[k], primal * dh[k]), at.h[k] - kStep * before(op, k) - primal * dt[op]);
  };
  // the sum of all products after such a step
  const auto products = [&](double primal, double dual) {
    double sum = 0;
    for (int e = 0; e < all; ++e) sum += (at.f[e] + dual * df[e]) * (s[e] + primal * ds[e]);
    for (int op = 0; op < n; ++op) {
      if (!movable(op)) continue;
      const double by = primal * dt[op];
      sum += moved(at.u[op], dual * du[op]) * (longer(op) + by);
      for (int k = first_[op]; k < first_[op + 1]; ++k) {
        const double h = moved_h(op, k, primal), y = moved_y(k, dual * dy[k]);
        sum += y * (h + at.t[op] + by - hinges_[k].at) + (hinges_[k].weight - y) * h;
      }
    }
    return sum;
  };
  const auto bounded = [&] {
    std::vector<Ticks> begin(n);
    for (int op = 0; op < n; ++op) begin[op] = static_cast<Ticks>(std::llround(at.x[op] * unit));
    Values flow(all);
    for (int e = 0; e < all; ++e) flow[e < arcs ? given_[e] : e] = at.f[e] * watt_;
    return bounds(begin, flow, limit);
  };

  slacks();
  Point best = bounded();
  is_rough = tolerance_j > kLoose * std::abs(best.cost);
  const double seconds = static_cast<double>(limit) / kTicksPerSecond;
  for (int turn = 1, stalled = 0; turn <= kMostIterations && stalled < kStalled; ++turn) {
    const double apart = best.cost - best.least(seconds);
    if (!best.start && apart <= kSoon * tolerance_j)
      best.start = std::make_shared<const Start>(Start{at.x, at.t, at.f});
    if (apart <= tolerance_j) break;
    std::fill(R.begin(), R.end(), 0.0), std::fill(rho.begin(), rho.end(), 0.0);
    product = 0;
    for (int e = 0; e < all; ++e) {
      W[e] = at.f[e] / s[e], product += at.f[e] * s[e];
      if (tail[e] < n) R[tail[e]] += at.f[e], rho[tail[e]] += at.f[e];
      if (head[e] < n) R[head[e]] -= at.f[e];
    }
    std::fill(extra.begin(), extra.end(), 0.0);
    for (int e = arcs; e < all; ++e) extra[head[e]] += W[e];
    std::size_t place = 0;
    for (int op = 0; op < n; ++op) {
      double own = movable(op) ? at.u[op] / longer(op) : 0, through = 0;
      rho[op] -= at.u[op], product += at.u[op] * longer(op);
      for (int k = first_[op]; k < first_[op + 1]; ++k) {
        const double a = before(op, k);
        D[k] = 1 / (a * rest(k) + at.h[k] * at.y[k]), product += at.y[k] * a + rest(k) * at.h[k];
        own += at.y[k] * rest(k) * D[k], rho[op] -= at.y[k];
      }
      const int from = out_[op], to = out_[op + 1];
      for (int e = from; e < to; ++e) through += W[e];
      H[op] = own + through;
      const double shared = movable(op) ? 1 / H[op] : 0;
      // sum of W d d' - (sum of W d)(sum of W d)' / H, where d = head - tail
      for (int e = from - 1; e < to; ++e)
        for (int k = e; k < to; ++k) {
          const int i = e < from ? op : head[e], j = k < from ? op : head[k];
          if (i >= n || j >= n) continue;
          double sum;
          if (e < from && k < from)
            sum = movable(op) ? through * own * shared : through;
          else if (e < from)
            sum = movable(op) ? -W[k] * own * shared : -W[k];
          else if (e == k)
            sum = movable(op) ? W[e] * (own + through - W[e]) * shared : W[e];
          else
            sum = -W[e] * W[k] * shared;
          value[place++] = sum;
        }
    }
    is_rough = is_rough && stalled < kRough;
    if (!is_rough) std::vector<float>().swap(rough);
    is_rough ? matrix_->factor(value, extra, rough) : matrix_->factor(value, extra, factor);
    direction(0, 0);
    auto [primal, dual] = reach(1);
    const double aim = std::max(std::pow(products(primal, dual) / product, kCentre), kFurthest);
    direction(aim * product / pairs, kMost * product / pairs);
    std::tie(primal, dual) = reach(1 / kStep);
    primal *= kStep, dual *= kStep;
    // not a number: the matrix says no more
    if (!(primal > 0 && dual > 0 && is_finite(dx) && is_finite(dt) && is_finite(df))) {
      if (!is_rough) break;
      is_rough = false;
      continue;
    }
    for (int op = 0; op < n; ++op) {
      for (int k = first_[op]; k < first_[op + 1]; ++k)
        at.h[k] = moved_h(op, k, primal), at.y[k] = moved_y(k, dual * dy[k]);
      at.x[op] += primal * dx[op], at.t[op] += primal * dt[op], at.u[op] = moved(at.u[op], dual * du[op]);
    }
    for (int e = 0; e < all; ++e) at.f[e] += dual * df[e];
    slacks();
    Point now = bounded();
    if (!std::isfinite(now.cost) || !std::isfinite(now.least(seconds))) break;
    ++stalled;
    // both bounds hold for good: the better of each is kept
    if (now.least(seconds) > best.least(seconds)) {
      if (now.least(seconds) > best.least(seconds) + 0.01 * tolerance_j) stalled = 0;
      best.intercept = now.intercept, best.price_w = now.price_w, best.flow = std::move(now.flow);
    }
    if (now.cost < best.cost) {
      if (now.cost < best.cost - 0.01 * tolerance_j) stalled = 0;
      best.cost = now.cost, best.begin = std::move(now.begin), best.end = std::move(now.end);
    }
    best.iterations = turn;
  }
  return best;
}

}  // namespace kdvfs::pipeline
