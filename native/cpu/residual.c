/* Residual stream plus a block's output, and the layernorm that follows it. */
#include "element.h"
#include "kdvfs/ref.h"

void kdvfs_ref_residual_layernorm(const kdvfs_residual_layernorm *args) {
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t i = 0; i < args->M * args->C; i++) {
    store(args->sum, i, dtype, load(args->a, i, dtype) + load(args->b, i, dtype));
  }
  /* of the sum as stored: backward will read that one */
  const kdvfs_layernorm_forward of_sum = {
      .M = args->M,
      .C = args->C,
      .dtype = dtype,
      .eps = args->eps,
      .inp = args->sum,
      .gamma = args->gamma,
      .beta = args->beta,
      .out = args->out,
      .mean = args->mean,
      .rstd = args->rstd,
  };
  kdvfs_ref_layernorm_forward(&of_sum);
}
