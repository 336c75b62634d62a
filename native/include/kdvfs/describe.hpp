// What each operation is made of: its settings and its tensors, with shapes and the values they are filled with.
// The one place that knows; both extensions read it: `_cpu` to check NumPy arrays, `_cuda` to lay out and fill
// device memory. Per operation:
//   settings(v, args)  calls v(name, member) for each size and setting, in the order of the struct
//   check(args)        throws ShapeError on settings that do not fit together
//   tensors(v, args)   calls v.input(name, pointer, shape, fill) and v.output(name, pointer, shape) in order;
//                      the settings must have been read before. The pointer's type gives the element type:
//                      void = that of the call, float = float32, int32_t = int32
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "kdvfs/error.hpp"
#include "kdvfs/kernels.h"

namespace kdvfs {

using Shape = std::vector<std::int64_t>;

// Values of an input at realistic scale. Never zeros or constants where arithmetic reads them: the power that a
// GEMM draws varies by almost 40 % with its operands (Gregersen, Patel, Choukse, arXiv 2409.18324).
struct Fill {
  enum Kind { zero, normal, lower, causal, ids } kind = zero;  // lower: normal, zero above the diagonal
  double mean = 0, sd = 0;
  // the first `rows` rows and `columns` columns of the last two axes are filled, padding is zero; 0 = all
  std::int64_t rows = 0, columns = 0;
  std::int64_t vocabulary = 0;  // ids: drawn from [0, vocabulary)

  static Fill none() { return {}; }
  static Fill activation() { return {normal, 0, 1, 0, 0, 0}; }
  static Fill weight() { return {normal, 0, 0.02, 0, 0, 0}; }
  static Fill gradient() { return {normal, 0, 1e-3, 0, 0, 0}; }
  static Fill gain() { return {normal, 1, 0.02, 0, 0, 0}; }    // gamma, rstd: about 1
  static Fill attention() { return {causal, 0, 1, 0, 0, 0}; }  // rows sum to 1, zero above the diagonal
  // lse of unit normal scores at about the middle of T positions: E[exp s] = exp(1/2)
  static Fill log_sums(std::int64_t T) { return {normal, std::log(static_cast<double>(T)) + 0.5, 0.1, 0, 0, 0}; }
  static Fill tokens(std::int64_t vocabulary) { return {ids, 0, 0, 0, 0, vocabulary}; }
};

inline std::string text(const Shape &shape) {
  std::string out;
  for (const std::int64_t length : shape) {
    out += (out.empty() ? "" : ", ") + std::to_string(length);
  }
  return "(" + out + ")";
}

inline std::int64_t elements(const Shape &shape) {
  std::int64_t all = 1;
  for (const std::int64_t length : shape) {
    all *= length;
  }
  return all;
}

[[noreturn]] inline void refuse(const char *op, const std::string &name, const std::string &is,
                                const std::string &expected) {
  throw ShapeError(std::string(op) + ": " + name + " is " + is + ", expected " + expected);
}

namespace detail {

inline void divides(const char *op, const char *small_name, std::int64_t small, const char *large_name,
                    std::int64_t large) {
  if (large % small != 0) {
    refuse(op, large_name, std::to_string(large),
           std::string("a multiple of ") + small_name + " = " + std::to_string(small));
  }
}

inline void positive(const char *op, const char *name, double value) {
  if (!(value > 0 && value < 1e30)) {
    refuse(op, name, std::to_string(value), "> 0 and finite");
  }
}

inline void vocabulary(const char *op, std::int64_t V) {
  if (V > INT32_MAX) {
    refuse(op, "V", std::to_string(V), "at most 2^31 - 1, what a token id can be");
  }
}

// Squares of scores: the limit of an int32 index, as in the trainers this workload stands for.
inline void squares(const char *op, std::int64_t N, std::int64_t T) {
  if (N > (INT64_C(1) << 31) / T / T || N * T * T >= (INT64_C(1) << 31)) {
    refuse(op, "B*NH*T*T", std::to_string(N) + "*" + std::to_string(T) + "*" + std::to_string(T),
           "below 2^31: a smaller batch or a higher tensor-parallel degree");
  }
}

// What a fused kernel keeps in registers and shared memory is as wide as a head.
inline void fused(const char *op, std::int64_t HS, double scale) {
  if (HS > KDVFS_LARGEST_HEAD) {
    refuse(op, "HS", std::to_string(HS), "at most " + std::to_string(KDVFS_LARGEST_HEAD));
  }
  positive(op, "scale", scale);
}

}  // namespace detail

template <typename Args>
struct Operation;

template <>
struct Operation<kdvfs_embedding_forward> {
  static constexpr const char *name = "embedding_forward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("T", a.T), v("C", a.C), v("V", a.V);
  }
  static void check(const kdvfs_embedding_forward &a) {
    detail::divides(name, "T", a.T, "M", a.M);
    detail::vocabulary(name, a.V);
  }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("ids", a.ids, {a.M}, Fill::tokens(a.V));
    v.input("wte", a.wte, {a.V, a.C}, Fill::weight());
    v.input("wpe", a.wpe, {a.T, a.C}, Fill::weight());
    v.output("out", a.out, {a.M, a.C});
  }
};

template <>
struct Operation<kdvfs_layernorm_forward> {
  static constexpr const char *name = "layernorm_forward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("C", a.C), v("eps", a.eps);
  }
  static void check(const kdvfs_layernorm_forward &a) { detail::positive(name, "eps", a.eps); }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("inp", a.inp, {a.M, a.C}, Fill::activation());
    v.input("gamma", a.gamma, {a.C}, Fill::gain());
    v.input("beta", a.beta, {a.C}, Fill::weight());
    v.output("out", a.out, {a.M, a.C});
    v.output("mean", a.mean, {a.M});
    v.output("rstd", a.rstd, {a.M});
  }
};

template <>
struct Operation<kdvfs_residual_layernorm> {
  static constexpr const char *name = "residual_layernorm";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("C", a.C), v("eps", a.eps);
  }
  static void check(const kdvfs_residual_layernorm &a) { detail::positive(name, "eps", a.eps); }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("a", a.a, {a.M, a.C}, Fill::activation());
    v.input("b", a.b, {a.M, a.C}, Fill::activation());
    v.input("gamma", a.gamma, {a.C}, Fill::gain());
    v.input("beta", a.beta, {a.C}, Fill::weight());
    v.output("sum", a.sum, {a.M, a.C});
    v.output("out", a.out, {a.M, a.C});
    v.output("mean", a.mean, {a.M});
    v.output("rstd", a.rstd, {a.M});
  }
};

template <>
struct Operation<kdvfs_layernorm_backward> {
  static constexpr const char *name = "layernorm_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("C", a.C);
  }
  static void check(const kdvfs_layernorm_backward &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("dout", a.dout, {a.M, a.C}, Fill::gradient());
    v.input("inp", a.inp, {a.M, a.C}, Fill::activation());
    v.input("gamma", a.gamma, {a.C}, Fill::gain());
    v.input("mean", a.mean, {a.M}, Fill::weight());
    v.input("rstd", a.rstd, {a.M}, Fill::gain());
    v.input("dinp_in", a.dinp_in, {a.M, a.C}, Fill::gradient());
    v.input("dgamma_in", a.dgamma_in, {a.C}, Fill::gradient());
    v.input("dbeta_in", a.dbeta_in, {a.C}, Fill::gradient());
    v.output("dinp_out", a.dinp_out, {a.M, a.C});
    v.output("dgamma_out", a.dgamma_out, {a.C});
    v.output("dbeta_out", a.dbeta_out, {a.C});
  }
};

template <>
struct Operation<kdvfs_permute_qkv_forward> {
  static constexpr const char *name = "permute_qkv_forward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("B", a.B), v("T", a.T), v("NH", a.NH), v("HS", a.HS);
  }
  static void check(const kdvfs_permute_qkv_forward &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("inp", a.inp, {a.B, a.T, 3, a.NH, a.HS}, Fill::activation());
    v.output("q", a.q, {a.B, a.NH, a.T, a.HS});
    v.output("k", a.k, {a.B, a.NH, a.T, a.HS});
    v.output("v", a.v, {a.B, a.NH, a.T, a.HS});
  }
};

template <>
struct Operation<kdvfs_permute_qkv_backward> {
  static constexpr const char *name = "permute_qkv_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("B", a.B), v("T", a.T), v("NH", a.NH), v("HS", a.HS);
  }
  static void check(const kdvfs_permute_qkv_backward &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("dq", a.dq, {a.B, a.NH, a.T, a.HS}, Fill::gradient());
    v.input("dk", a.dk, {a.B, a.NH, a.T, a.HS}, Fill::gradient());
    v.input("dv", a.dv, {a.B, a.NH, a.T, a.HS}, Fill::gradient());
    v.output("dinp", a.dinp, {a.B, a.T, 3, a.NH, a.HS});
  }
};

template <>
struct Operation<kdvfs_permute_heads_forward> {
  static constexpr const char *name = "permute_heads_forward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("B", a.B), v("T", a.T), v("NH", a.NH), v("HS", a.HS);
  }
  static void check(const kdvfs_permute_heads_forward &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("inp", a.inp, {a.B, a.NH, a.T, a.HS}, Fill::activation());
    v.output("out", a.out, {a.B, a.T, a.NH, a.HS});
  }
};

template <>
struct Operation<kdvfs_permute_heads_backward> {
  static constexpr const char *name = "permute_heads_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("B", a.B), v("T", a.T), v("NH", a.NH), v("HS", a.HS);
  }
  static void check(const kdvfs_permute_heads_backward &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("dout", a.dout, {a.B, a.T, a.NH, a.HS}, Fill::gradient());
    v.output("dinp", a.dinp, {a.B, a.NH, a.T, a.HS});
  }
};

template <>
struct Operation<kdvfs_softmax_forward> {
  static constexpr const char *name = "softmax_forward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("N", a.N), v("T", a.T), v("scale", a.scale);
  }
  static void check(const kdvfs_softmax_forward &a) {
    detail::squares(name, a.N, a.T);
    detail::positive(name, "scale", a.scale);
  }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("pre", a.pre, {a.N, a.T, a.T}, Fill::activation());
    v.output("att", a.att, {a.N, a.T, a.T});
  }
};

template <>
struct Operation<kdvfs_softmax_backward> {
  static constexpr const char *name = "softmax_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("N", a.N), v("T", a.T), v("scale", a.scale), v("skip_upper", a.skip_upper);
  }
  static void check(const kdvfs_softmax_backward &a) {
    detail::squares(name, a.N, a.T);
    detail::positive(name, "scale", a.scale);
  }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("att", a.att, {a.N, a.T, a.T}, Fill::attention());
    v.input("datt", a.datt, {a.N, a.T, a.T}, Fill::gradient());
    v.output("dpre", a.dpre, {a.N, a.T, a.T});
  }
};

template <>
struct Operation<kdvfs_attention_forward> {
  static constexpr const char *name = "attention_forward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("B", a.B), v("T", a.T), v("NH", a.NH), v("HS", a.HS), v("scale", a.scale);
  }
  static void check(const kdvfs_attention_forward &a) { detail::fused(name, a.HS, a.scale); }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("qkv", a.qkv, {a.B, a.T, 3, a.NH, a.HS}, Fill::activation());
    v.output("out", a.out, {a.B, a.T, a.NH, a.HS});
    v.output("lse", a.lse, {a.B, a.NH, a.T});
  }
};

template <>
struct Operation<kdvfs_attention_backward> {
  static constexpr const char *name = "attention_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("B", a.B), v("T", a.T), v("NH", a.NH), v("HS", a.HS), v("scale", a.scale);
  }
  static void check(const kdvfs_attention_backward &a) { detail::fused(name, a.HS, a.scale); }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("qkv", a.qkv, {a.B, a.T, 3, a.NH, a.HS}, Fill::activation());
    v.input("out", a.out, {a.B, a.T, a.NH, a.HS}, Fill::activation());
    v.input("lse", a.lse, {a.B, a.NH, a.T}, Fill::log_sums(a.T));
    v.input("dout", a.dout, {a.B, a.T, a.NH, a.HS}, Fill::gradient());
    v.output("dqkv", a.dqkv, {a.B, a.T, 3, a.NH, a.HS});
  }
};

template <>
struct Operation<kdvfs_gelu_forward> {
  static constexpr const char *name = "gelu_forward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("C", a.C);
  }
  static void check(const kdvfs_gelu_forward &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("inp", a.inp, {a.M, a.C}, Fill::activation());
    v.output("out", a.out, {a.M, a.C});
  }
};

template <>
struct Operation<kdvfs_gelu_backward> {
  static constexpr const char *name = "gelu_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("C", a.C);
  }
  static void check(const kdvfs_gelu_backward &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("inp", a.inp, {a.M, a.C}, Fill::activation());
    v.input("dout", a.dout, {a.M, a.C}, Fill::gradient());
    v.output("dinp", a.dinp, {a.M, a.C});
  }
};

template <>
struct Operation<kdvfs_classifier> {
  static constexpr const char *name = "classifier";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("V", a.V), v("Vp", a.Vp), v("dloss", a.dloss);
  }
  static void check(const kdvfs_classifier &a) {
    if (a.V > a.Vp) {
      refuse(name, "Vp", std::to_string(a.Vp), "at least V = " + std::to_string(a.V));
    }
    detail::positive(name, "dloss", a.dloss);
    detail::vocabulary(name, a.V);
  }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    Fill logits = Fill::activation();
    logits.columns = a.V;
    v.input("logits", a.logits, {a.M, a.Vp}, logits);
    v.input("targets", a.targets, {a.M}, Fill::tokens(a.V));
    v.input("losses_in", a.losses_in, {a.M}, Fill::activation());
    v.output("dlogits", a.dlogits, {a.M, a.Vp});
    v.output("losses_out", a.losses_out, {a.M});
  }
};

template <>
struct Operation<kdvfs_bias_backward> {
  static constexpr const char *name = "bias_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("OC", a.OC), v("G", a.G);
  }
  static void check(const kdvfs_bias_backward &a) {
    if (a.G > a.M) {
      refuse(name, "G", std::to_string(a.G), "at most M = " + std::to_string(a.M));
    }
  }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("dout", a.dout, {a.M, a.OC}, Fill::gradient());
    if (a.G == 1) {
      v.input("dbias_in", a.dbias_in, {a.OC}, Fill::gradient());
      v.output("dbias_out", a.dbias_out, {a.OC});
    } else {
      v.output("partials", a.partials, {a.G, a.OC});
    }
  }
};

template <>
struct Operation<kdvfs_bias_reduce> {
  static constexpr const char *name = "bias_reduce";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("OC", a.OC), v("G", a.G);
  }
  static void check(const kdvfs_bias_reduce &) {}
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("partials", a.partials, {a.G, a.OC}, Fill::gradient());
    v.input("dbias_in", a.dbias_in, {a.OC}, Fill::gradient());
    v.output("dbias_out", a.dbias_out, {a.OC});
  }
};

template <>
struct Operation<kdvfs_wpe_backward> {
  static constexpr const char *name = "wpe_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("T", a.T), v("C", a.C), v("seed", a.seed);
  }
  static void check(const kdvfs_wpe_backward &a) { detail::divides(name, "T", a.T, "M", a.M); }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("dout", a.dout, {a.M, a.C}, Fill::gradient());
    v.input("dwpe_in", a.dwpe_in, {a.T, a.C}, Fill::gradient());
    v.output("dwpe_out", a.dwpe_out, {a.T, a.C});
  }
};

template <>
struct Operation<kdvfs_wte_backward> {
  static constexpr const char *name = "wte_backward";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("M", a.M), v("V", a.V), v("C", a.C), v("seed", a.seed);
  }
  static void check(const kdvfs_wte_backward &a) { detail::vocabulary(name, a.V); }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    v.input("ids", a.ids, {a.M}, Fill::tokens(a.V));
    v.input("dout", a.dout, {a.M, a.C}, Fill::gradient());
    v.input("dwte_in", a.dwte_in, {a.V, a.C}, Fill::gradient());
    v.output("dwte_out", a.dwte_out, {a.V, a.C});
  }
};

template <>
struct Operation<kdvfs_gemm> {
  static constexpr const char *name = "gemm";
  template <typename V, typename A>
  static void settings(V &&v, A &a) {
    v("count", a.count), v("M", a.M), v("N", a.N), v("K", a.K);
    v("layout", a.layout), v("has_bias", a.has_bias), v("accumulate", a.accumulate);
  }
  static void check(const kdvfs_gemm &a) {
    if (a.count > 1) {
      detail::squares(name, a.count, a.M > a.K ? a.M : a.K);
    }
  }
  template <typename V, typename A>
  static void tensors(V &&v, A &a) {
    const Shape left = a.layout == KDVFS_NT ? Shape{a.count, a.K, a.M} : Shape{a.count, a.M, a.K};
    const Shape right = a.layout == KDVFS_TN ? Shape{a.count, a.N, a.K} : Shape{a.count, a.K, a.N};
    v.input("a", a.a, left, Fill::activation());
    v.input("b", a.b, right, Fill::weight());
    if (a.has_bias) {
      v.input("bias", a.bias, {a.N}, Fill::weight());
    }
    if (a.accumulate) {
      v.input("c", a.c, {a.count, a.M, a.N}, Fill::gradient());
    }
    v.output("d", a.d, {a.count, a.M, a.N});
  }
};

}  // namespace kdvfs
