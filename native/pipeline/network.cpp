#include "kdvfs/pipeline/network.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace kdvfs::pipeline {
namespace {

constexpr std::int64_t kUnbounded = std::int64_t{1} << 60;
constexpr double kJoulePerUwTick = 1e-18;
constexpr double kStill = 1e-9;  // J: less is rounding of the sums
constexpr double kNoCutoff = std::numeric_limits<double>::infinity();
constexpr int kTried = 8;  // options that an operation tries, hull vertices first

}  // namespace

Network::Network(const Edges& edges, Choices hull, std::vector<std::int64_t> price_uw, Choices options)
    : hull_(std::move(hull)), options_(std::move(options)), price_(std::move(price_uw)) {
  const int n = operations_ = static_cast<int>(hull_.first.size()) - 1;
  source_ = 2 * n, sink_ = 2 * n + 1, nodes_ = 2 * n + 2;
  std::vector<bool> entered(n), left(n);
  const auto add = [this](int tail, int head, Ticks lag) {
    tail_.push_back(tail), head_.push_back(head), lag_.push_back(lag);
  };
  for (int op = 0; op < n; ++op) add(op, n + op, 0);
  for (std::size_t e = 0; e < edges.tail.size(); ++e) {
    add(n + edges.tail[e], edges.head[e], edges.lag[e]);
    left[edges.tail[e]] = entered[edges.head[e]] = true;
  }
  for (int op = 0; op < n; ++op) {
    if (!entered[op]) add(source_, op, 0);
    if (!left[op]) add(n + op, sink_, 0);
  }
  add(sink_, source_, 0);
  arcs_ = static_cast<int>(tail_.size());
  block_ = std::max(20, static_cast<int>(std::sqrt(arcs_)));
}

Ticks Network::length(int arc, int piece) const {
  if (arc < operations_)
    return chosen_[arc] >= 0 ? options_.ticks[chosen_[arc]] : hull_.ticks[hull_.first[arc] + piece];
  return arc == arcs_ - 1 ? -limit_ : lag_[arc];
}

std::int64_t Network::lower(int arc, int piece) const {
  return arc >= operations_ || piece == last(arc) ? 0 : price_[hull_.first[arc] + piece + 1];
}

std::int64_t Network::upper(int arc, int piece) const {
  return arc >= operations_ || piece == 0 ? kUnbounded : price_[hull_.first[arc] + piece];
}

std::int64_t Network::room(int arc, bool more) const {
  const Arc& own = arc_[arc];
  if (!more) return own.flow - lower(arc, own.piece);
  const std::int64_t most = upper(arc, own.piece);
  return most == kUnbounded ? kUnbounded : most - own.flow;
}

// By how much an arc outside the tree breaks optimality, in ticks; 0 where it does not.
Ticks Network::violation(int arc, bool& more) const {
  const Arc& own = arc_[arc];
  if (own.in_tree) return 0;
  const Ticks tension = node_[head_[arc]].pi - node_[tail_[arc]].pi;
  const Ticks missing = length(arc, own.piece) - tension;
  if (missing > 0) return more = true, missing;
  if (arc >= operations_) return own.flow > 0 ? (more = false, -missing) : 0;
  if (own.piece == last(arc)) return 0;
  more = false;
  return std::max<Ticks>(tension - length(arc, own.piece + 1), 0);
}

// No flow: everyone at the slowest vertex, every node hanging on the longest path to the sink.
void Network::start() {
  const int n = operations_;
  node_.assign(nodes_, Node{0, -1, -1, 0, -1, -1, -1});
  arc_.assign(arcs_, Arc{0, 0, false});
  chosen_.assign(n, -1);
  node_epoch_.assign(nodes_, 0), arc_epoch_.assign(arcs_, 0);
  epoch_ = 0, cursor_ = 0;
  std::vector<std::vector<int>> out(n + 1);  // arcs out of an operation's end; last: out of the source
  for (int arc = n; arc < arcs_ - 1; ++arc) out[tail_[arc] == source_ ? n : tail_[arc] - n].push_back(arc);
  const auto hang = [&](int node, const std::vector<int>& arcs) {
    int best = arcs.front();
    for (int arc : arcs)
      if (node_[head_[arc]].pi - lag_[arc] < node_[head_[best]].pi - lag_[best]) best = arc;
    node_[node].pi = node_[head_[best]].pi - lag_[best];
    node_[node].arc = best, arc_[best].in_tree = true;
    link(node, head_[best]);
  };
  bound_ = 0;
  for (int op = n - 1; op >= 0; --op) {
    hang(n + op, out[op]);
    const int slowest = hull_.first[op + 1] - 1;
    node_[op].pi = node_[n + op].pi - hull_.ticks[slowest];
    node_[op].arc = op, arc_[op] = Arc{0, last(op), true};
    link(op, n + op);
    bound_ += hull_.cost[slowest];
  }
  hang(source_, out[n]);
  stack_.assign(1, sink_);
  while (!stack_.empty()) {
    const int node = stack_.back();
    stack_.pop_back();
    for (int below = node_[node].child; below >= 0; below = node_[below].next) {
      node_[below].depth = node_[node].depth + 1;
      stack_.push_back(below);
    }
  }
}

bool Network::solve(Ticks limit) {
  start();
  limit_ = limit;
  return optimise(kNoCutoff) == 1;
}

std::vector<Ticks> Network::times() const {
  std::vector<Ticks> made(2 * static_cast<std::size_t>(operations_));
  for (std::size_t node = 0; node < made.size(); ++node) made[node] = node_[node].pi - node_[source_].pi;
  return made;
}

void Network::unlink(int node) {
  const Node& own = node_[node];
  if (own.previous >= 0) {
    keep_node(own.previous);
    node_[own.previous].next = own.next;
  } else {
    keep_node(own.parent);
    node_[own.parent].child = own.next;
  }
  if (own.next >= 0) {
    keep_node(own.next);
    node_[own.next].previous = own.previous;
  }
}

void Network::link(int node, int parent) {
  keep_node(node), keep_node(parent);
  Node& own = node_[node];
  own.parent = parent, own.previous = -1, own.next = node_[parent].child;
  if (own.next >= 0) {
    keep_node(own.next);
    node_[own.next].previous = node;
  }
  node_[parent].child = node;
}

void Network::shift(int top, Ticks by, bool depths) {
  stack_.assign(1, top);
  while (!stack_.empty()) {
    const int node = stack_.back();
    stack_.pop_back();
    keep_node(node);
    Node& own = node_[node];
    own.pi += by;
    if (depths) own.depth = node_[own.parent].depth + 1;
    for (int below = own.child; below >= 0; below = node_[below].next) stack_.push_back(below);
  }
}

// Sends what fits around the circle that `arc` closes; false where nothing bounds it. The tree stays strongly feasible
// (of equal bottlenecks the last one seen from the circle's apex leaves), so no tree comes twice.
bool Network::pivot(int arc, bool more, Ticks by) {
  const int piece = arc_[arc].piece + (!more && arc < operations_ ? 1 : 0);
  const int from = more ? tail_[arc] : head_[arc], to = more ? head_[arc] : tail_[arc];
  std::int64_t amount = arc_[arc].flow - lower(arc, piece);
  if (more) {
    const std::int64_t most = upper(arc, piece);
    amount = most == kUnbounded ? kUnbounded : most - arc_[arc].flow;
  }
  int apex = from;
  for (int other = to; apex != other;) {
    int& deeper = node_[apex].depth >= node_[other].depth ? apex : other;
    deeper = node_[deeper].parent;
  }
  int leaving = -1;
  bool below_from = false;
  for (int node = from; node != apex; node = node_[node].parent) {
    const std::int64_t fits = room(node_[node].arc, tail_[node_[node].arc] != node);
    if (fits < amount) amount = fits, leaving = node, below_from = true;
  }
  for (int node = to; node != apex; node = node_[node].parent) {
    const std::int64_t fits = room(node_[node].arc, tail_[node_[node].arc] == node);
    if (fits <= amount && fits < kUnbounded) amount = fits, leaving = node, below_from = false;
  }
  if (amount >= kUnbounded / 2) return false;
  bound_ += static_cast<double>(by) * static_cast<double>(amount) * kJoulePerUwTick;
  keep_arc(arc);
  if (amount > 0) {
    arc_[arc].flow += more ? amount : -amount;
    for (int node = from; node != apex; node = node_[node].parent) {
      const int own = node_[node].arc;
      keep_arc(own);
      arc_[own].flow += tail_[own] == node ? -amount : amount;
    }
    for (int node = to; node != apex; node = node_[node].parent) {
      const int own = node_[node].arc;
      keep_arc(own);
      arc_[own].flow += tail_[own] == node ? amount : -amount;
    }
  }
  if (leaving < 0) {  // it met its own other end
    if (arc < operations_) arc_[arc].piece = more ? piece - 1 : piece;
    return true;
  }
  const int out = node_[leaving].arc;
  keep_arc(out);
  arc_[out].in_tree = false;
  // a leaving operation that is full goes on to the next piece
  if (out < operations_ && (tail_[out] == leaving) != below_from) --arc_[out].piece;
  arc_[arc].piece = piece, arc_[arc].in_tree = true;
  const int top = below_from ? from : to;
  int node = top, parent = below_from ? to : from, own = arc;
  while (true) {
    const int next = node_[node].parent, next_arc = node_[node].arc;
    unlink(node);
    link(node, parent);
    node_[node].arc = own;
    if (node == leaving) break;
    parent = node, own = next_arc, node = next;
  }
  const Ticks wanted =
      top == head_[arc] ? node_[tail_[arc]].pi + length(arc, piece) : node_[head_[arc]].pi - length(arc, piece);
  shift(top, wanted - node_[top].pi, true);
  return true;
}

// 1: optimal, 0: nothing bounds it (no plan is as fast), -1: above the cutoff.
int Network::optimise(double cutoff) {
  // a strongly feasible tree never comes twice; the limit is for a fault of ours, not for a long search
  for (std::int64_t left = 2000 * static_cast<std::int64_t>(arcs_) + 1000000; left > 0; --left) {
    if (bound_ > cutoff) return -1;
    Ticks most = 0;
    int entering = -1;
    bool more = false;
    for (int seen = 0, in_block = block_; seen < arcs_; ++seen) {
      bool own_more = false;
      const Ticks by = violation(cursor_, own_more);
      if (by > most) most = by, entering = cursor_, more = own_more;
      if (++cursor_ == arcs_) cursor_ = 0;
      if (--in_block == 0) {
        if (entering >= 0) break;
        in_block = block_;
      }
    }
    if (entering < 0) return 1;
    if (!pivot(entering, more, most)) return 0;
  }
  throw std::runtime_error("network simplex: no end in sight");
}

// Fixes an operation at one of its options (-1: frees it); optimise() is due then.
void Network::choose(int op, int option) {
  const int vertex = hull_.first[op] + arc_[op].piece;
  const double flow = static_cast<double>(arc_[op].flow) * kJoulePerUwTick;
  const auto part = [&](int own) {
    return own >= 0 ? options_.cost[own] + flow * static_cast<double>(options_.ticks[own])
                    : hull_.cost[vertex] + flow * static_cast<double>(hull_.ticks[vertex]);
  };
  bound_ += part(option) - part(chosen_[op]);
  if (epoch_) old_chosen_.emplace_back(op, chosen_[op]);
  chosen_[op] = option;
  if (!arc_[op].in_tree) return;
  const int begin = op, end = operations_ + op;
  const Ticks by = node_[begin].pi + length(op, arc_[op].piece) - node_[end].pi;
  if (by) node_[begin].arc == op ? shift(begin, -by, false) : shift(end, by, false);
}

int Network::vertex_within(int op, Ticks duration) const {
  const auto first = hull_.ticks.begin() + hull_.first[op];
  return static_cast<int>(std::upper_bound(first, hull_.ticks.begin() + hull_.first[op + 1], duration) - first) - 1;
}

bool Network::settle(int op) {
  const Ticks planned = node_[operations_ + op].pi - node_[op].pi;
  const int vertex = vertex_within(op, planned);
  const auto option_of = [&](int hull_vertex) {
    const auto all = options_.ticks.begin();
    const Ticks ticks = hull_.ticks[hull_.first[op] + hull_vertex];
    return static_cast<int>(
        std::lower_bound(all + options_.first[op], all + options_.first[op + 1], ticks) - all);
  };
  const int fast = option_of(vertex);
  if (vertex == last(op) || hull_.ticks[hull_.first[op] + vertex] == planned) {
    choose(op, fast);
    return optimise(kNoCutoff) == 1;
  }
  const int slow = option_of(vertex + 1);
  const double price = (options_.cost[fast] - options_.cost[slow]) /
                       static_cast<double>(options_.ticks[slow] - options_.ticks[fast]);
  struct Candidate {
    bool between;
    double rank, loss;
    int option;
  };
  std::vector<Candidate> candidates;
  for (int option = fast; option <= slow; ++option) {
    const double loss = options_.cost[option] - options_.cost[fast] +
                        price * static_cast<double>(options_.ticks[option] - options_.ticks[fast]);
    const double distance = price * std::abs(static_cast<double>(options_.ticks[option] - planned));
    const bool between = option != fast && option != slow;
    candidates.push_back({between, distance + (between ? loss : 0), std::max(loss, 0.0), option});
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.between != b.between ? b.between : a.rank != b.rank ? a.rank < b.rank : a.option < b.option;
  });
  const double before = bound_;
  double least = kNoCutoff;
  int best = -1, tried = 0;
  for (const Candidate& own : candidates) {
    if (before + own.loss >= least - kStill) continue;
    if (tried++ == kTried) break;
    checkpoint();
    choose(op, own.option);
    const bool found = optimise(least - kStill) == 1;
    const double now = bound_;
    undo();
    if (found && now < least - kStill) {
      least = now, best = own.option;
      if (now <= before + kStill) break;
    }
  }
  if (best < 0) return false;
  choose(op, best);
  return optimise(kNoCutoff) == 1;
}

std::vector<int> Network::dive(const std::vector<int>& order, std::vector<Ticks>& times_out) {
  checkpoint();
  std::vector<int> made(operations_);
  bool whole = true;
  for (int op : order) whole = whole && settle(op);
  if (whole) {
    for (int op = 0; op < operations_; ++op) made[op] = chosen_[op] - options_.first[op];
    times_out = times();
  }
  undo();
  if (!whole) throw std::runtime_error("network simplex: an operation found no option in time");
  return made;
}

void Network::keep_node(int node) {
  if (epoch_ && node_epoch_[node] != epoch_) {
    node_epoch_[node] = epoch_;
    old_nodes_.emplace_back(node, node_[node]);
  }
}

void Network::keep_arc(int arc) {
  if (epoch_ && arc_epoch_[arc] != epoch_) {
    arc_epoch_[arc] = epoch_;
    old_arcs_.emplace_back(arc, arc_[arc]);
  }
}

void Network::checkpoint() {
  marks_.push_back({old_nodes_.size(), old_arcs_.size(), old_chosen_.size(), bound_});
  ++epoch_;
}

void Network::undo() {
  const Mark mark = marks_.back();
  marks_.pop_back();
  for (; old_nodes_.size() > mark.nodes; old_nodes_.pop_back())
    node_[old_nodes_.back().first] = old_nodes_.back().second;
  for (; old_arcs_.size() > mark.arcs; old_arcs_.pop_back()) arc_[old_arcs_.back().first] = old_arcs_.back().second;
  for (; old_chosen_.size() > mark.fixed; old_chosen_.pop_back())
    chosen_[old_chosen_.back().first] = old_chosen_.back().second;
  bound_ = mark.bound;
  if (marks_.empty()) {
    epoch_ = 0;
    std::fill(node_epoch_.begin(), node_epoch_.end(), 0);
    std::fill(arc_epoch_.begin(), arc_epoch_.end(), 0);
  } else {
    ++epoch_;
  }
}

}  // namespace kdvfs::pipeline
