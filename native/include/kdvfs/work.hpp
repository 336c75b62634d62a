// What one launch of an operation does, counted from its own sizes and tensors (describe.hpp): operations and bytes.
// Written apart from the formulas that a study counts with (workflow/kernel_dvfs/workload/formulas.py), so that each can
// be held to the other (kernel_dvfs/native/agreement.py).
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kdvfs/buckets.hpp"
#include "kdvfs/describe.hpp"

namespace kdvfs {

struct Work {
  std::int64_t flop = 0;         // a multiplication with an addition is two; exp, tanh, a maximum, a division are one
  std::int64_t tensor_flop = 0;  // of flop, in matrix products
  std::int64_t sfu_op = 0;       // of special-function units: one an exp, two a tanh (exp, reciprocal)
  // what the operation cannot do without: every element that it needs, once
  std::int64_t read_byte = 0, write_byte = 0;
  // what this layer moves beside that: zeros that fill a sector; a gradient that a trainer would overwrite
  std::int64_t spare_read_byte = 0, spare_write_byte = 0;
  std::int64_t resident_byte = 0;  // of all tensors that it reads or writes, and of what is derived of others
};

namespace detail {

// Elements of a tensor that a launch needs, and that it moves beside those.
struct Part {
  std::int64_t needed, spare = 0;
};

// On and below the diagonals of N squares.
inline std::int64_t triangle(std::int64_t N, std::int64_t T) { return N * (T * (T + 1) / 2); }

// Between the diagonals of N squares and the ends of their sectors.
inline std::int64_t sector_zeros(std::int64_t N, std::int64_t T) {
  std::int64_t zeros = 0;
  for (std::int64_t t = 0; t < T; t++) {
    const std::int64_t end = (t / KDVFS_SECTOR + 1) * KDVFS_SECTOR;
    zeros += (end < T ? end : T) - (t + 1);
  }
  return N * zeros;
}

// --- which part of a tensor: all of it, but for these -----------------------------------------------------------

// `all`: elements of the tensor; `distinct`: different ids among the tokens
template <typename Args>
Part part_of(const Args &, const std::string &, std::int64_t all, std::int64_t) {
  return {all};
}

inline Part part_of(const kdvfs_embedding_forward &a, const std::string &name, std::int64_t all,
                    std::int64_t distinct) {
  return {name == "wte" ? distinct * a.C : all};
}

inline Part part_of(const kdvfs_wte_backward &a, const std::string &name, std::int64_t all, std::int64_t distinct) {
  if (name == "ids") {
    return {0};  // read in buckets: derived_byte
  }
  return {name == "dout" ? all : distinct * a.C};
}

inline Part part_of(const kdvfs_softmax_forward &a, const std::string &name, std::int64_t, std::int64_t) {
  return {triangle(a.N, a.T), name == "att" ? sector_zeros(a.N, a.T) : 0};
}

inline Part part_of(const kdvfs_softmax_backward &a, const std::string &name, std::int64_t all, std::int64_t) {
  if (name == "dpre" && !a.skip_upper) {
    return {all};  // zeros above the diagonal are part of what is asked for
  }
  return {triangle(a.N, a.T), name == "dpre" ? sector_zeros(a.N, a.T) : 0};
}

inline Part part_of(const kdvfs_classifier &a, const std::string &name, std::int64_t all, std::int64_t) {
  return {name == "logits" || name == "dlogits" ? a.M * a.V : all};  // not the padding
}

inline Part part_of(const kdvfs_bias_backward &, const std::string &name, std::int64_t all, std::int64_t) {
  return name == "dbias_in" ? Part{0, all} : Part{all};
}

// --- what is derived: buckets of tokens (derived.hpp) -----------------------------------------------------------

template <typename Args>
std::int64_t derived_byte(const Args &, std::int64_t) {
  return 0;
}

template <typename Args>
std::int64_t most_derived_byte(const Args &) {
  return 0;
}

// Of `distinct` different ids: for each group of channels a bucket of each id, and all tokens in their order.
inline std::int64_t derived_byte(const kdvfs_wte_backward &a, std::int64_t distinct) {
  const std::int64_t groups = (a.C + bucket_channels - 1) / bucket_channels;
  const auto bucket = static_cast<std::int64_t>(sizeof *a.buckets), token = static_cast<std::int64_t>(sizeof *a.order);
  return groups * (bucket * distinct + token * a.M);
}

inline std::int64_t most_derived_byte(const kdvfs_wte_backward &a) { return derived_byte(a, a.M < a.V ? a.M : a.V); }

// --- operations -------------------------------------------------------------------------------------------------

struct Operations {
  std::int64_t flop, tensor_flop = 0, sfu_op = 0;
};

// one addition an element
inline Operations operations(const kdvfs_embedding_forward &a) { return {a.M * a.C}; }
inline Operations operations(const kdvfs_wpe_backward &a) { return {a.M * a.C}; }
inline Operations operations(const kdvfs_wte_backward &a) { return {a.M * a.C}; }
inline Operations operations(const kdvfs_bias_backward &a) { return {a.M * a.OC}; }
inline Operations operations(const kdvfs_bias_reduce &a) { return {a.G * a.OC}; }
// the mean 1; deviation, square, sum 3; deviation, rstd, gamma, beta 4
inline Operations operations(const kdvfs_layernorm_forward &a) { return {8 * a.M * a.C}; }
inline Operations operations(const kdvfs_residual_layernorm &a) { return {9 * a.M * a.C}; }
// norm 2, dnorm 1, their two means 3; dinp 4 and what it is added to 1; dgamma 2, dbeta 1; dnorm once more 1
inline Operations operations(const kdvfs_layernorm_backward &a) { return {15 * a.M * a.C}; }
inline Operations operations(const kdvfs_permute_qkv_forward &) { return {0}; }
inline Operations operations(const kdvfs_permute_qkv_backward &) { return {0}; }
inline Operations operations(const kdvfs_permute_heads_forward &) { return {0}; }
inline Operations operations(const kdvfs_permute_heads_backward &) { return {0}; }
// online: maximum, shift, scale, exp, rescaled sum 2; then shift, scale, exp, share 4
inline Operations operations(const kdvfs_softmax_forward &a) {
  const std::int64_t scores = triangle(a.N, a.T);
  return {10 * scores, 0, 2 * scores};
}
// mean 2; difference, weight, scale 3
inline Operations operations(const kdvfs_softmax_backward &a) { return {5 * triangle(a.N, a.T)}; }
// of each score two products over a head, and maximum, scale, shift, exp, sum, share
inline Operations operations(const kdvfs_attention_forward &a) {
  const std::int64_t scores = triangle(a.B * a.NH, a.T), products = 2 * (2 * a.HS) * scores;
  return {products + 6 * scores, products, scores};
}
// five products; of each score its weight and its gradient; of each output the mean of the gradient
inline Operations operations(const kdvfs_attention_backward &a) {
  const std::int64_t scores = triangle(a.B * a.NH, a.T), products = 5 * (2 * a.HS) * scores;
  return {products + 6 * scores + 2 * (a.B * a.T * a.NH * a.HS), products, scores};
}
// the cube 3, its sum 1, scale 1, tanh 1, plus one 1, half of x 1, product 1
inline Operations operations(const kdvfs_gelu_forward &a) { return {9 * a.M * a.C, 0, 2 * a.M * a.C}; }
// tanh as above 6; its argument's slope 5; both terms 8, times dout 1
inline Operations operations(const kdvfs_gelu_backward &a) { return {20 * a.M * a.C, 0, 2 * a.M * a.C}; }
// as softmax_forward 10; minus onehot, times dloss 2
inline Operations operations(const kdvfs_classifier &a) { return {12 * a.M * a.V, 0, 2 * a.M * a.V}; }
inline Operations operations(const kdvfs_gemm &a) {
  const std::int64_t products = 2 * a.count * a.M * a.N * a.K;
  return {products, products};
}

template <typename T>
std::int64_t element_byte(kdvfs_dtype dtype) {
  if constexpr (std::is_void_v<T>) {
    return dtype == KDVFS_BF16 ? 2 : 4;
  } else {
    return sizeof(T);
  }
}

// Adds up an operation's tensors, a visitor of Operation<Args>::tensors.
template <typename Args>
struct Weigher {
  const Args &args;
  std::int64_t distinct;
  Work &work;

  template <typename T>
  void input(const char *name, const T *, const Shape &shape, const Fill &) {
    add(name, element_byte<T>(args.dtype), shape, work.read_byte, work.spare_read_byte);
  }
  template <typename T>
  void output(const char *name, const T *, const Shape &shape) {
    add(name, element_byte<T>(args.dtype), shape, work.write_byte, work.spare_write_byte);
  }
  void add(const char *name, std::int64_t byte, const Shape &shape, std::int64_t &needed, std::int64_t &spare) {
    const std::int64_t all = elements(shape);
    const Part part = part_of(args, name, all, distinct);
    needed += byte * part.needed;
    spare += byte * part.spare;
    work.resident_byte += part.needed + part.spare ? byte * all : 0;
  }
};

}  // namespace detail

// Different ids among `count` tokens.
inline std::int64_t distinct_ids(const std::int32_t *ids, std::int64_t count) {
  return static_cast<std::int64_t>(std::set<std::int32_t>(ids, ids + count).size());
}

// As both extensions tell it.
inline std::vector<std::pair<const char *, std::int64_t>> named(const Work &work) {
  return {{"flop", work.flop},
          {"tensor_flop", work.tensor_flop},
          {"sfu_op", work.sfu_op},
          {"read_byte", work.read_byte},
          {"write_byte", work.write_byte},
          {"spare_read_byte", work.spare_read_byte},
          {"spare_write_byte", work.spare_write_byte},
          {"resident_byte", work.resident_byte}};
}

// distinct: different ids among the tokens that are looked up; of no meaning to other operations.
template <typename Args>
Work work_of(const Args &args, std::int64_t distinct) {
  const detail::Operations done = detail::operations(args);
  Work work{done.flop, done.tensor_flop, done.sfu_op};
  Operation<Args>::tensors(detail::Weigher<Args>{args, distinct, work}, args);
  work.read_byte += detail::derived_byte(args, distinct);
  work.resident_byte += detail::most_derived_byte(args);
  return work;
}

}  // namespace kdvfs
