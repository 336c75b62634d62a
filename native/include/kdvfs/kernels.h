/* The kernels of a transformer layer: one argument struct each, shared by the C reference (ref.h) and the
 * CUDA kernels (launch.hpp). What tensors an operation has, their shapes and their values stand in describe.hpp.
 *
 * Gradients are drift-free: what a training step would accumulate in place (`x += f`) is written as
 * `x_out = x_in + f`, so a kernel repeated for seconds on the same buffers computes the same thing.
 *
 * Letters: B batch, T sequence length, C channels, NH heads of HS channels, V vocabulary, Vp padded vocabulary,
 * OC output channels, M tokens (rows); a `d` prefix is a gradient. Tensors are contiguous and row-major, and no
 * output overlaps an input. `void *` tensors have the call's element type; arithmetic is float32 in any case.
 * With tensor parallelism, NH and OC count one rank's share, and M, T its tokens and positions where tokens are
 * what is divided. */
#ifndef KDVFS_KERNELS_H
#define KDVFS_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element type of the `void *` tensors; one type per call. CUDA kernels take bf16 only. */
typedef enum {
  KDVFS_FLOAT32,
  KDVFS_BF16, /* uint16_t bits, rounded to nearest even at stores (but see stochastic rounding below) */
} kdvfs_dtype;

/* Elements of a sector, 32 bytes of bf16: memory is written in whole sectors, one that is written in part is read
 * first. */
#define KDVFS_SECTOR 16

/* Every operation, by the one name that its row, struct, C reference, CUDA kernel and tests share. */
#define KDVFS_HAND_WRITTEN(X) \
  X(embedding_forward)        \
  X(layernorm_forward)        \
  X(residual_layernorm)       \
  X(permute_qkv_forward)      \
  X(permute_heads_forward)    \
  X(softmax_forward)          \
  X(gelu_forward)             \
  X(classifier)               \
  X(layernorm_backward)       \
  X(gelu_backward)            \
  X(bias_backward)            \
  X(bias_reduce)              \
  X(permute_heads_backward)   \
  X(softmax_backward)         \
  X(permute_qkv_backward)     \
  X(wpe_backward)             \
  X(wte_backward)
/* ... and those that a library computes on the GPU */
#define KDVFS_ATTENTION(X) \
  X(attention_forward)     \
  X(attention_backward)
#define KDVFS_OPERATIONS(X) \
  KDVFS_HAND_WRITTEN(X)     \
  KDVFS_ATTENTION(X)        \
  X(gemm)

/* out = wte[ids] + wpe[position]; tokens lie sequence by sequence, so token m has position m % T. */
typedef struct {
  int64_t M, T, C, V;
  kdvfs_dtype dtype;
  const int32_t *ids; /* (M) in [0, V) */
  const void *wte;    /* (V, C) */
  const void *wpe;    /* (T, C) */
  void *out;          /* (M, C) */
} kdvfs_embedding_forward;

/* out = (inp - mean) * rstd * gamma + beta, per row. */
typedef struct {
  int64_t M, C;
  kdvfs_dtype dtype;
  float eps;         /* added to the variance */
  const void *inp;   /* (M, C) */
  const void *gamma; /* (C) */
  const void *beta;  /* (C) */
  void *out;         /* (M, C) */
  float *mean;       /* (M) kept for backward */
  float *rstd;       /* (M) 1 / sqrt(var + eps), kept for backward */
} kdvfs_layernorm_forward;

/* sum = a + b (rounded to the element type), out = layernorm(sum): the residual stream and the next block's
 * input in one pass. */
typedef struct {
  int64_t M, C;
  kdvfs_dtype dtype;
  float eps;
  const void *a;     /* (M, C) */
  const void *b;     /* (M, C) */
  const void *gamma; /* (C) */
  const void *beta;  /* (C) */
  void *sum;         /* (M, C) */
  void *out;         /* (M, C) layernorm of the rounded sum */
  float *mean;       /* (M) */
  float *rstd;       /* (M) */
} kdvfs_residual_layernorm;

/* Gradients of layernorm_forward, each added to what it is given. */
typedef struct {
  int64_t M, C;
  kdvfs_dtype dtype;
  const void *dout;      /* (M, C) */
  const void *inp;       /* (M, C) as in forward */
  const void *gamma;     /* (C) */
  const float *mean;     /* (M) from forward */
  const float *rstd;     /* (M) from forward */
  const void *dinp_in;   /* (M, C) gradient that bypasses the layernorm (residual stream) */
  const void *dgamma_in; /* (C) */
  const void *dbeta_in;  /* (C) */
  void *dinp_out;        /* (M, C) */
  void *dgamma_out;      /* (C) */
  void *dbeta_out;       /* (C) */
} kdvfs_layernorm_backward;

/* (B, T, 3, NH, HS) -> three of (B, NH, T, HS). */
typedef struct {
  int64_t B, T, NH, HS;
  kdvfs_dtype dtype;
  const void *inp; /* (B, T, 3, NH, HS) */
  void *q, *k, *v; /* (B, NH, T, HS) each */
} kdvfs_permute_qkv_forward;

/* The inverse of permute_qkv_forward. */
typedef struct {
  int64_t B, T, NH, HS;
  kdvfs_dtype dtype;
  const void *dq, *dk, *dv; /* (B, NH, T, HS) each */
  void *dinp;               /* (B, T, 3, NH, HS) */
} kdvfs_permute_qkv_backward;

/* (B, NH, T, HS) -> (B, T, NH, HS). */
typedef struct {
  int64_t B, T, NH, HS;
  kdvfs_dtype dtype;
  const void *inp; /* (B, NH, T, HS) */
  void *out;       /* (B, T, NH, HS) */
} kdvfs_permute_heads_forward;

/* The inverse of permute_heads_forward. */
typedef struct {
  int64_t B, T, NH, HS;
  kdvfs_dtype dtype;
  const void *dout; /* (B, T, NH, HS) */
  void *dinp;       /* (B, NH, T, HS) */
} kdvfs_permute_heads_backward;

/* att[n, t, u] = softmax over u <= t of scale * pre[n, t, u]. Above the diagonal nothing is read, zeros are written up
 * to the next multiple of KDVFS_SECTOR columns, so that rows end with whole sectors, and nothing beyond. */
typedef struct {
  int64_t N, T; /* N = B*NH squares of T x T */
  kdvfs_dtype dtype;
  float scale;     /* 1 / sqrt(HS) */
  const void *pre; /* (N, T, T) */
  void *att;       /* (N, T, T) */
} kdvfs_softmax_forward;

/* dpre = scale * att * (datt - sum_u(att * datt)) for u <= t. Above the diagonal nothing is read and zeros are written:
 * to the end of the row, or with skip_upper as softmax_forward does. */
typedef struct {
  int64_t N, T;
  kdvfs_dtype dtype;
  float scale;
  int32_t skip_upper; /* 0 or 1 */
  const void *att;    /* (N, T, T) */
  const void *datt;   /* (N, T, T) */
  void *dpre;         /* (N, T, T) */
} kdvfs_softmax_backward;

/* Attention fused into one launch, in token order: position t attends to u <= t of its sequence,
 * s[t, u] = scale * (q[t] . k[u]), out[t] = sum over u of softmax(s[t])[u] * v[u]. Nothing of T x T is stored; backward
 * makes the weights again from lse. HS is at most KDVFS_LARGEST_HEAD. */
#define KDVFS_LARGEST_HEAD 256
typedef struct {
  int64_t B, T, NH, HS;
  kdvfs_dtype dtype;
  float scale;     /* 1 / sqrt(HS) */
  const void *qkv; /* (B, T, 3, NH, HS) */
  void *out;       /* (B, T, NH, HS) */
  float *lse;      /* (B, NH, T) log of the sum over u <= t of exp(s[t, u]), kept for backward */
} kdvfs_attention_forward;

/* Gradient of attention_forward with respect to qkv. */
typedef struct {
  int64_t B, T, NH, HS;
  kdvfs_dtype dtype;
  float scale;
  const void *qkv;  /* (B, T, 3, NH, HS) as in forward */
  const void *out;  /* (B, T, NH, HS) from forward */
  const float *lse; /* (B, NH, T) from forward */
  const void *dout; /* (B, T, NH, HS) */
  void *dqkv;       /* (B, T, 3, NH, HS) */
} kdvfs_attention_backward;

/* GELU in its tanh form: out = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
typedef struct {
  int64_t M, C;
  kdvfs_dtype dtype;
  const void *inp; /* (M, C) */
  void *out;       /* (M, C) */
} kdvfs_gelu_forward;

/* dinp = dout * d out / d inp of gelu_forward. */
typedef struct {
  int64_t M, C;
  kdvfs_dtype dtype;
  const void *inp;  /* (M, C) as in forward */
  const void *dout; /* (M, C) */
  void *dinp;       /* (M, C) */
} kdvfs_gelu_backward;

/* Softmax over the first V of Vp columns, cross-entropy, and its gradient:
 * losses_out = losses_in - log p[target], dlogits = dloss * (p - onehot(target)).
 * Columns from V on are neither read nor written. */
typedef struct {
  int64_t M, V, Vp;
  kdvfs_dtype dtype;
  float dloss;            /* gradient of the mean loss: 1 / (tokens of the whole batch) */
  const void *logits;     /* (M, Vp) */
  const int32_t *targets; /* (M) in [0, V) */
  const float *losses_in; /* (M) */
  void *dlogits;          /* (M, Vp) */
  float *losses_out;      /* (M) */
} kdvfs_classifier;

/* Column sums of dout over its rows. G = 1: dbias_out = dbias_in + sum. G > 1: partials[g] = sum over rows
 * g*R ... min(M, (g+1)*R) - 1 with R = ceil(M / G), left for bias_reduce; then the dbias pointers are null. */
typedef struct {
  int64_t M, OC, G;
  kdvfs_dtype dtype;
  const void *dout;     /* (M, OC) */
  const void *dbias_in; /* (OC) if G = 1 */
  void *dbias_out;      /* (OC) if G = 1 */
  float *partials;      /* (G, OC) if G > 1 */
} kdvfs_bias_backward;

/* dbias_out = dbias_in + sum over g of partials[g], in the order of g. */
typedef struct {
  int64_t OC, G;
  kdvfs_dtype dtype;
  const float *partials; /* (G, OC) */
  const void *dbias_in;  /* (OC) */
  void *dbias_out;       /* (OC) */
} kdvfs_bias_reduce;

/* Stochastic rounding of the two table gradients: a bf16 result takes the upper of its two neighbours with the
 * probability of its distance from the lower one. The choice is a function of seed and element index only
 * (kdvfs_round_stochastic in rounding.h), so that a repeated launch gives the same bits. float32 is not rounded. */

/* dwpe_out = dwpe_in + sum over sequences of dout; token m has position m % T. Sums in the order of m. */
typedef struct {
  int64_t M, T, C;
  kdvfs_dtype dtype;
  uint32_t seed;       /* of the stochastic rounding */
  const void *dout;    /* (M, C) */
  const void *dwpe_in; /* (T, C) */
  void *dwpe_out;      /* (T, C) */
} kdvfs_wpe_backward;

/* A token id and 256 of its channels: the tokens that have it are order[first ... first + count - 1]. */
typedef struct {
  int32_t first, count, id, channel_group;
} kdvfs_bucket;

/* dwte_out[id] = dwte_in[id] + sum over tokens with that id of dout; rows of ids that do not occur are neither
 * read nor written. Sums in the order of m. */
typedef struct {
  int64_t M, V, C;
  kdvfs_dtype dtype;
  uint32_t seed;       /* of the stochastic rounding */
  const int32_t *ids;  /* (M) in [0, V) */
  const void *dout;    /* (M, C) */
  const void *dwte_in; /* (V, C) */
  void *dwte_out;      /* (V, C) */
  /* made from ids by make_buckets (buckets.hpp); the C reference needs neither */
  int64_t bucket_count;
  const kdvfs_bucket *buckets; /* (bucket_count) largest first */
  const int32_t *order;        /* (M) tokens sorted by id, then by m */
} kdvfs_wte_backward;

/* Which factor is stored transposed, by the BLAS (column-major) name of the call; row-major it is
 * TN: d = a b^T, a (M, K), b (N, K);  NN: d = a b, b (K, N);  NT: d = a^T b, a (K, M), b (K, N). */
typedef enum { KDVFS_TN, KDVFS_NN, KDVFS_NT } kdvfs_layout;

/* d = op(a) op(b) + bias + c for each of `count` products; accumulated in float32, rounded once. */
typedef struct {
  int64_t count, M, N, K;
  kdvfs_dtype dtype;
  kdvfs_layout layout;
  int32_t has_bias;   /* 1 adds bias to every row */
  int32_t accumulate; /* 1 adds c (beta = 1); d is another tensor */
  const void *a;      /* (count, M, K), NT: (count, K, M) */
  const void *b;      /* (count, N, K), NN and NT: (count, K, N) */
  const void *bias;   /* (N) if has_bias */
  const void *c;      /* (count, M, N) if accumulate */
  void *d;            /* (count, M, N) */
} kdvfs_gemm;

#ifdef __cplusplus
}
#endif

#endif
