// The linear programme of a pipeline's operations at one iteration time, by network simplex, and whole clocks from it.
//
// min sum c_i(t_i), begins and ends spaced by durations and edges, the last end <= T. Its dual is a circulation: every
// operation is an arc begin -> end whose length falls with its flow (hull vertices t_K .. t_0), every edge an arc of
// its lag, and one arc sink -> source of length -T closes the circle. A spanning tree of tight arcs gives all times.
// Durations in ticks (1 ps), flows in uW, costs in J. Knows nothing of Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kdvfs::pipeline {

using Ticks = std::int64_t;

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

class Network {
 public:
  // hull: vertices of each operation's lower convex hull; price_uw[k]: of the segment between vertices k - 1 and k
  // (that of the first vertex is not read). options: all undominated ones, hull vertices among them.
  Network(const Edges& edges, Choices hull, std::vector<std::int64_t> price_uw, Choices options);

  // The optimum at iteration time `limit`, the same whatever was solved before; false where none is as fast.
  bool solve(Ticks limit);

  // Of the last solve: begins, then ends, from 0 at the source.
  std::vector<Ticks> times() const;
  double cost() const { return bound_; }                         // J, the optimum
  std::int64_t price_uw() const { return arc_[arcs_ - 1].flow; }  // what one more second saves

  // An option (position in its own list) for every operation, none later than the solved time: in `order`, each takes
  // the one of which the programme for all others grows least. The solution is as before afterwards; `times_out` are
  // begins and ends that leave each operation its option.
  std::vector<int> dive(const std::vector<int>& order, std::vector<Ticks>& times_out);

 private:
  struct Node {
    Ticks pi;
    int parent, arc, depth, child, next, previous;
  };
  struct Arc {
    std::int64_t flow;
    int piece;  // hull vertex whose length holds; outside the tree: of more flow
    bool in_tree;
  };
  struct Mark {
    std::size_t nodes, arcs, fixed;
    double bound;
  };

  int last(int op) const { return hull_.first[op + 1] - hull_.first[op] - 1; }
  Ticks length(int arc, int piece) const;
  std::int64_t lower(int arc, int piece) const;
  std::int64_t upper(int arc, int piece) const;
  std::int64_t room(int arc, bool more) const;
  Ticks violation(int arc, bool& more) const;

  void start();
  int optimise(double cutoff);
  bool pivot(int arc, bool more, Ticks by);
  void link(int node, int parent);
  void unlink(int node);
  void shift(int top, Ticks by, bool depths);
  void choose(int op, int option);
  bool settle(int op);
  int vertex_within(int op, Ticks duration) const;

  void keep_node(int node);
  void keep_arc(int arc);
  void checkpoint();
  void undo();

  Choices hull_, options_;
  std::vector<std::int64_t> price_;
  int operations_, nodes_, arcs_, source_, sink_;
  std::vector<int> tail_, head_;
  std::vector<Ticks> lag_;
  std::vector<Node> node_;
  std::vector<Arc> arc_;
  std::vector<int> chosen_;  // option of each operation, -1: free
  double bound_ = 0;
  Ticks limit_ = 0;
  int cursor_ = 0, block_;
  std::vector<int> stack_;
  // what to restore: each node and arc once an epoch
  std::vector<std::pair<int, Node>> old_nodes_;
  std::vector<std::pair<int, Arc>> old_arcs_;
  std::vector<std::pair<int, int>> old_chosen_;
  std::vector<int> node_epoch_, arc_epoch_;
  std::vector<Mark> marks_;
  int epoch_ = 0;
};

// Takes slower options in `choice` while they fit an iteration of `limit`, the one that saves most first (in all, or
// per second).
void repair(const Edges& edges, const Choices& options, std::vector<int>& choice, Ticks limit, bool per_second);

}  // namespace kdvfs::pipeline
