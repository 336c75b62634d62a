#include "kdvfs/pipeline/cholesky.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <Eigen/Core>
#include <Eigen/OrderingMethods>
#include <Eigen/SparseCore>

namespace kdvfs::pipeline {
namespace {

using Lists = std::vector<std::vector<int>>;
template <class Real>
using Matrix = Eigen::Matrix<Real, Eigen::Dynamic, Eigen::Dynamic>;
template <class Real>
using Panel = Eigen::Map<Matrix<Real>>;

// two blocks become one where zeros are at most this share of it, or where it has so few columns
constexpr double kZeros = 0.15;
constexpr int kNarrow = 8;
constexpr float kTiny = 1e-30f, kHuge = 1e30f;

// old numbers in the order of elimination
std::vector<int> minimum_degree(int size, const std::vector<std::pair<int, int>>& entries) {
  std::vector<Eigen::Triplet<double, int>> both;
  for (const auto& [i, j] : entries) both.emplace_back(i, j, 1), both.emplace_back(j, i, 1);
  Eigen::SparseMatrix<double, Eigen::ColMajor, int> pattern(size, size);
  pattern.setFromTriplets(both.begin(), both.end());
  Eigen::PermutationMatrix<Eigen::Dynamic, Eigen::Dynamic, int> order;
  Eigen::AMDOrdering<int>()(pattern, order);
  return {order.indices().data(), order.indices().data() + size};
}

std::vector<int> elimination_tree(const Lists& before) {
  const int size = static_cast<int>(before.size());
  std::vector<int> parent(size, -1), top(size, -1);
  for (int i = 0; i < size; ++i)
    for (int j : before[i])
      while (j != -1 && j < i) {
        const int next = top[j];
        top[j] = i;
        if (next == -1) parent[j] = i;
        j = next;
      }
  return parent;
}

// children before parents, each subtree in one piece
std::vector<int> postorder(const std::vector<int>& parent) {
  const int size = static_cast<int>(parent.size());
  Lists children(size);
  std::vector<int> stack, order;
  for (int j = size; j-- > 0;)
    if (parent[j] == -1) stack.push_back(j);
    else children[parent[j]].push_back(j);
  while (!stack.empty()) {
    const int j = stack.back();
    stack.pop_back();
    order.push_back(j);
    for (int child : children[j]) stack.push_back(child);
  }
  std::reverse(order.begin(), order.end());
  return order;
}

// for each row the columns before it that have an entry in it
Lists columns_before(int size, const std::vector<std::pair<int, int>>& entries, const std::vector<int>& to) {
  Lists before(size);
  for (const auto& [i, j] : entries)
    if (i != j) before[std::max(to[i], to[j])].push_back(std::min(to[i], to[j]));
  return before;
}

double room(double columns, double rows) { return columns * (columns + 1) / 2 + columns * rows; }

// a block's columns of the factor, and what they take from the rest
template <class Real>
void eliminate(Panel<Real> panel, std::vector<Real>& rest) {
  const Eigen::Index columns = panel.cols(), rows = panel.rows() - columns;
  for (Eigen::Index j = 0; j < columns; ++j) {
    const Eigen::Index under = columns - j - 1;
    const Real pivot = panel(j, j) > kTiny ? std::sqrt(panel(j, j)) : kHuge;
    panel(j, j) = pivot;
    panel.col(j).segment(j + 1, under) /= pivot;
    for (Eigen::Index k = j + 1; k < columns; ++k)
      panel.col(k).segment(k, columns - k) -= panel(k, j) * panel.col(j).segment(k, columns - k);
  }
  if (!rows) return;
  auto low = panel.bottomRows(rows);
  panel.topRows(columns)
      .template triangularView<Eigen::Lower>()
      .transpose()
      .template solveInPlace<Eigen::OnTheRight>(low);
  Panel<Real>(rest.data(), rows, rows).template selfadjointView<Eigen::Lower>().rankUpdate(low, Real(-1));
}

}  // namespace

Cholesky::Cholesky(int size, const std::vector<std::pair<int, int>>& entries) : size_(size), to_(size) {
  const std::vector<int> order = minimum_degree(size, entries);
  for (int k = 0; k < size; ++k) to_[order[k]] = k;
  const std::vector<int> post = postorder(elimination_tree(columns_before(size, entries, to_)));
  std::vector<int> again(size);
  for (int k = 0; k < size; ++k) again[post[k]] = k;
  for (int& place : to_) place = again[place];

  const Lists before = columns_before(size, entries, to_);
  const std::vector<int> parent = elimination_tree(before);
  Lists below(size);
  for (int i = 0; i < size; ++i)
    for (int j : before[i]) below[j].push_back(i);
  Lists sons(size);
  for (int j = 0; j < size; ++j)
    if (parent[j] != -1) sons[parent[j]].push_back(j);
  // rows of each column of the factor; equal ones become a block, nearly equal blocks one
  std::vector<double> zeros;
  std::vector<int> mark(size, -1);
  for (int j = 0; j < size; ++j) {
    std::vector<int> rows;
    mark[j] = j;
    const auto add = [&](const std::vector<int>& own) {
      for (int i : own)
        if (mark[i] != j) mark[i] = j, rows.push_back(i);
    };
    add(below[j]);
    for (int son : sons[j]) {
      add(below[son]);
      std::vector<int>().swap(below[son]);
    }
    std::sort(rows.begin(), rows.end());
    below[j] = rows;
    blocks_.push_back({j, j + 1, -1, std::move(rows), {}, 0});
    zeros.push_back(0);
    while (blocks_.size() > 1) {
      Block &last = blocks_.back(), &one = blocks_[blocks_.size() - 2];
      if (one.rows.empty() || one.rows.front() >= last.end) break;  // not a child
      const double wide = one.end - one.begin, more = last.end - last.begin;
      const double one_rows = static_cast<double>(one.rows.size()), rest = static_cast<double>(last.rows.size());
      const double all = room(wide + more, rest);
      const double empty = zeros[zeros.size() - 2] + zeros.back() + all - room(wide, one_rows) - room(more, rest);
      if (empty > kZeros * all && (wide + more > kNarrow || empty > 0.5 * all)) break;
      one.end = last.end;
      one.rows = std::move(last.rows);
      blocks_.pop_back(), zeros.pop_back();
      zeros.back() = empty;
    }
  }
  const int count = static_cast<int>(blocks_.size());
  std::vector<int> block_of(size);
  for (int at = 0; at < count; ++at)
    for (int j = blocks_[at].begin; j < blocks_[at].end; ++j) block_of[j] = at;
  // where a row stands in a block's front
  const auto place = [&](const Block& block, int row) {
    if (row < block.end) return row - block.begin;
    const auto found = std::lower_bound(block.rows.begin(), block.rows.end(), row);
    return block.end - block.begin + static_cast<int>(found - block.rows.begin());
  };
  children_.resize(count), entries_.resize(count), diagonal_.resize(count);
  for (int at = 0; at < count; ++at) {
    Block& block = blocks_[at];
    const std::size_t columns = block.end - block.begin;
    block.at = room_, room_ += columns * (columns + block.rows.size());
    if (block.rows.empty()) continue;
    block.parent = block_of[block.rows.front()];
    children_[block.parent].push_back(at);
    for (int row : block.rows) block.place.push_back(place(blocks_[block.parent], row));
  }
  const auto target = [&](int i, int j) {
    const Block& block = blocks_[block_of[j]];
    const std::ptrdiff_t height = block.end - block.begin + static_cast<std::ptrdiff_t>(block.rows.size());
    return place(block, i) + height * (j - block.begin);
  };
  for (std::size_t e = 0; e < entries.size(); ++e) {
    const int i = std::max(to_[entries[e].first], to_[entries[e].second]);
    const int j = std::min(to_[entries[e].first], to_[entries[e].second]);
    entries_[block_of[j]].emplace_back(static_cast<int>(e), target(i, j));
  }
  for (int row = 0; row < size; ++row) diagonal_[block_of[to_[row]]].emplace_back(row, target(to_[row], to_[row]));
}

template <class Real>
void Cholesky::factor(const std::vector<double>& value, const std::vector<double>& extra,
                      std::vector<Real>& made) const {
  const int count = static_cast<int>(blocks_.size());
  made.assign(room_, 0);
  // what each block leaves to its parent, until that one takes it; and room that is free again
  std::vector<std::vector<Real>> rests(count), spare;
  for (int at = 0; at < count; ++at) {
    const Block& block = blocks_[at];
    Real* const own = made.data() + block.at;
    const int columns = block.end - block.begin, rows = static_cast<int>(block.rows.size()), height = columns + rows;
    for (const auto& [e, place] : entries_[at]) own[place] += static_cast<Real>(value[e]);
    for (const auto& [row, place] : diagonal_[at]) own[place] += static_cast<Real>(extra[row]);
    std::vector<Real>& rest = rests[at];
    if (rows && !spare.empty()) rest = std::move(spare.back()), spare.pop_back();
    rest.assign(static_cast<std::size_t>(rows) * rows, 0);
    for (int child : children_[at]) {
      const std::vector<int>& to = blocks_[child].place;
      const std::size_t many = to.size();
      for (std::size_t j = 0; j < many; ++j) {
        const Real* from = rests[child].data() + j * many;
        // rows rise in both, so what is below the diagonal stays there
        Real* into = to[j] < columns ? own + static_cast<std::size_t>(to[j]) * height
                                       : rest.data() + static_cast<std::size_t>(to[j] - columns) * rows - columns;
        for (std::size_t i = j; i < many; ++i) into[to[i]] += from[i];
      }
      spare.push_back(std::move(rests[child]));
    }
    eliminate(Panel<Real>(own, height, columns), rest);
  }
}

template <class Real>
void Cholesky::solve(const std::vector<Real>& factor, std::vector<double>& b) const {
  Eigen::Matrix<Real, Eigen::Dynamic, 1> x(size_);
  for (int row = 0; row < size_; ++row) x[to_[row]] = static_cast<Real>(b[row]);
  for (const Block& block : blocks_) {
    const Eigen::Index columns = block.end - block.begin, rows = static_cast<Eigen::Index>(block.rows.size());
    const Eigen::Map<const Matrix<Real>> panel(factor.data() + block.at, columns + rows, columns);
    auto own = x.segment(block.begin, columns);
    panel.topRows(columns).template triangularView<Eigen::Lower>().solveInPlace(own);
    const Eigen::Matrix<Real, Eigen::Dynamic, 1> change = panel.bottomRows(rows) * own;
    for (Eigen::Index i = 0; i < rows; ++i) x[block.rows[i]] -= change[i];
  }
  for (auto block = blocks_.rbegin(); block != blocks_.rend(); ++block) {
    const Eigen::Index columns = block->end - block->begin, rows = static_cast<Eigen::Index>(block->rows.size());
    const Eigen::Map<const Matrix<Real>> panel(factor.data() + block->at, columns + rows, columns);
    Eigen::Matrix<Real, Eigen::Dynamic, 1> after(rows);
    for (Eigen::Index i = 0; i < rows; ++i) after[i] = x[block->rows[i]];
    auto own = x.segment(block->begin, columns);
    own -= panel.bottomRows(rows).transpose() * after;
    panel.topRows(columns).template triangularView<Eigen::Lower>().transpose().solveInPlace(own);
  }
  for (int row = 0; row < size_; ++row) b[row] = x[to_[row]];
}

template void Cholesky::factor(const std::vector<double>&, const std::vector<double>&, std::vector<float>&) const;
template void Cholesky::factor(const std::vector<double>&, const std::vector<double>&, std::vector<double>&) const;
template void Cholesky::solve(const std::vector<float>&, std::vector<double>&) const;
template void Cholesky::solve(const std::vector<double>&, std::vector<double>&) const;

}  // namespace kdvfs::pipeline
