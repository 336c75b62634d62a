// A sparse symmetric positive definite matrix of constant pattern, factorised again and again: supernodal multifrontal
// Cholesky. The pattern is kept here, the numbers by the caller. Eigen orders (approximate minimum degree) and works on
// the dense blocks. Knows nothing of pipelines.
// Source: Liu, SIAM Review 34(1), 1992.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace kdvfs::pipeline {

class Cholesky {
 public:
  // entries: (row, column), row >= column, every diagonal one among them; one that comes twice is summed.
  Cholesky(int size, const std::vector<std::pair<int, int>>& entries);

  // value: of each entry, in the constructor's order; extra: of the diagonal, on top; made: the factor, in float or
  // double, for `solve`. A pivot that rounding has made too small to divide by becomes so large that its row stands
  // still.
  template <class Real>
  void factor(const std::vector<double>& value, const std::vector<double>& extra, std::vector<Real>& made) const;

  template <class Real>
  void solve(const std::vector<Real>& factor, std::vector<double>& b) const;  // in place

 private:
  struct Block {
    int begin, end, parent;  // columns [begin, end); the block of the first row below them, -1: none
    std::vector<int> rows;   // the rows below, rising
    std::vector<int> place;  // of those rows, in the parent's front
    std::size_t at;          // in the factor: (columns + rows) x columns, by columns
  };

  int size_;
  std::size_t room_ = 0;  // of a factor
  std::vector<int> to_;  // new place of each row
  std::vector<Block> blocks_;
  std::vector<std::vector<int>> children_;
  std::vector<std::vector<std::pair<int, std::ptrdiff_t>>> entries_, diagonal_;  // of each block: which, and where
};

}  // namespace kdvfs::pipeline
