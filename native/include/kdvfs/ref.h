/* C reference of the kernels: what each one computes, in plain loops. An oracle for tests, never a
 * performance baseline.
 *
 * One argument struct per kernel, and one function that takes it. Functions allocate nothing, keep no
 * state and check nothing: the caller has checked shapes, and no output overlaps an input.
 *
 * Gradients are drift-free: what a training step would accumulate in place (`x += f`) is written as
 * `x_out = x_in + f`, so a kernel repeated for seconds on the same buffers computes the same thing.
 *
 * Letters: B batch, T sequence length, C channels, M = B*T rows; a `d` prefix is a gradient.
 * Tensors are contiguous and row-major. */
#ifndef KDVFS_REF_H
#define KDVFS_REF_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element type of the tensors marked `const void *` and `void *` below; one type per call. Arithmetic
 * is float32 in both cases. */
typedef enum {
  KDVFS_FLOAT32,
  KDVFS_BF16, /* uint16_t bits, rounded to nearest even at stores */
} kdvfs_dtype;

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

void kdvfs_ref_layernorm_forward(const kdvfs_layernorm_forward *args);

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

void kdvfs_ref_layernorm_backward(const kdvfs_layernorm_backward *args);

#ifdef __cplusplus
}
#endif

#endif
