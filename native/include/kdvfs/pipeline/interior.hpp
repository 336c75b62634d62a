// The linear programme of a pipeline's operations at one iteration time, at any size, by a primal-dual interior point.
//
// min sum c_i(t_i), starts x spaced by durations and edges, 0 <= x, the last end <= T. Each c_i is its last vertex plus
// hinges w_k max(t_k - t, 0). Newton's equations are reduced operation by operation: hinges, then durations. What is
// left is one sparse symmetric matrix over the starts, with the graph's pattern. Every answer is a pair of proofs: a
// schedule that keeps T (an upper bound) and a flow (weak duality: a lower bound, at every other time as well).
// Source: Mehrotra, SIAM Journal on Optimization 2(4), 1992. Knows nothing of Python.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kdvfs/pipeline/cholesky.hpp"
#include "kdvfs/pipeline/graph.hpp"

namespace kdvfs::pipeline {

// Values within a solve, not yet its answer: a solve at a time between two such starts from their mixture.
struct Start {
  std::vector<double> x, t, f;
};

struct Point {
  std::vector<Ticks> begin, end;  // a schedule within the limit; every operation has its fastest time at least
  double cost;                    // J, what its durations cost on the hulls: no optimum at the limit is dearer
  double intercept, price_w;      // intercept - price_w T bounds every schedule of T seconds from below, up to slowest
  int iterations;
  // W through each edge: what one more second there would save; then those to the end and from the begin
  std::vector<double> flow;

  std::shared_ptr<const Start> start;  // none where the bounds stayed far apart

  double least(double seconds) const { return intercept - price_w * seconds; }
};

class Interior {
 public:
  // hull: vertices of each operation's lower convex hull, fastest first.
  Interior(Edges edges, Choices hull);

  Ticks fastest() const { return fastest_; }
  Ticks slowest() const { return slowest_; }

  // Both bounds at iteration time `limit`, in [fastest, slowest], until they are `tolerance_j` apart or numbers of 53
  // bits say no more. slower, faster: both or none, of points at such times: mixed, they are where it starts. May run in
  // several threads at once.
  Point solve(Ticks limit, double tolerance_j, const Start* slower = nullptr, const Start* faster = nullptr) const;

 private:
  struct Hinge {
    double at, weight;
  };
  struct State;

  std::vector<Ticks> earliest(const std::vector<Ticks>& ticks) const;
  void roomy(State& at, double T) const;
  Point bounds(const std::vector<Ticks>& begin, const std::vector<double>& flow, Ticks limit) const;
  Point slowest_point() const;  // everyone's cheapest, which nothing undercuts

  Edges edges_;  // by tail, with one more for each operation that nothing waits for: to the end
  std::vector<int> given_;  // which of the constructor's edges each is; behind these, those to the end
  Choices hull_;
  int operations_;
  std::size_t flows_ = 0;  // of a point: edges, those to the end and from the begin
  std::vector<int> out_;  // edges of tail i are [out_[i], out_[i + 1])
  std::vector<int> first_;
  std::vector<Hinge> hinges_;  // of operation i: [first_[i], first_[i + 1])
  std::vector<double> fast_;   // duration of the fastest vertex
  std::vector<bool> entry_;
  std::vector<Ticks> begin_;  // when all are fastest
  Ticks fastest_ = 0, slowest_ = 0;
  std::size_t entries_ = 0;
  std::unique_ptr<const Cholesky> matrix_;  // over starts
  double second_ = 1, watt_ = 1;  // what times and prices are counted in, within a solve
};

}  // namespace kdvfs::pipeline
