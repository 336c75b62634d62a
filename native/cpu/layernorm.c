/* Layernorm over the C channels of each of M rows, forward and backward (Ba, Kiros, Hinton 2016,
 * arXiv 1607.06450). Sums run in index order in float32. */
#include <math.h>

#include "element.h"
#include "kdvfs/ref.h"

void kdvfs_ref_layernorm_forward(const kdvfs_layernorm_forward *args) {
  const int64_t M = args->M, C = args->C;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t m = 0; m < M; m++) {
    const int64_t row = m * C;
    float sum = 0.0f;
    for (int64_t c = 0; c < C; c++) {
      sum += load(args->inp, row + c, dtype);
    }
    const float mean = sum / (float)C;
    /* a second pass over the deviations: E[x^2] - E[x]^2 would cancel when the mean is large */
    float squares = 0.0f;
    for (int64_t c = 0; c < C; c++) {
      const float deviation = load(args->inp, row + c, dtype) - mean;
      squares += deviation * deviation;
    }
    const float rstd = 1.0f / sqrtf(squares / (float)C + args->eps);
    for (int64_t c = 0; c < C; c++) {
      const float norm = (load(args->inp, row + c, dtype) - mean) * rstd;
      store(args->out, row + c, dtype, norm * load(args->gamma, c, dtype) + load(args->beta, c, dtype));
    }
    args->mean[m] = mean;
    args->rstd[m] = rstd;
  }
}

void kdvfs_ref_layernorm_backward(const kdvfs_layernorm_backward *args) {
  const int64_t M = args->M, C = args->C;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t m = 0; m < M; m++) {
    const int64_t row = m * C;
    const float mean = args->mean[m], rstd = args->rstd[m];
    /* norm has mean 0 and variance 1 whatever inp is, so two directions of its gradient have no effect
     * on inp: the constant one and the one along norm. Both averages are taken out below. */
    float dnorm_mean = 0.0f, dnorm_norm_mean = 0.0f;
    for (int64_t c = 0; c < C; c++) {
      const float norm = (load(args->inp, row + c, dtype) - mean) * rstd;
      const float dnorm = load(args->gamma, c, dtype) * load(args->dout, row + c, dtype);
      dnorm_mean += dnorm;
      dnorm_norm_mean += dnorm * norm;
    }
    dnorm_mean /= (float)C;
    dnorm_norm_mean /= (float)C;
    for (int64_t c = 0; c < C; c++) {
      const float norm = (load(args->inp, row + c, dtype) - mean) * rstd;
      const float dnorm = load(args->gamma, c, dtype) * load(args->dout, row + c, dtype);
      const float dinp = (dnorm - dnorm_mean - norm * dnorm_norm_mean) * rstd;
      store(args->dinp_out, row + c, dtype, load(args->dinp_in, row + c, dtype) + dinp);
    }
  }
  /* column by column, so that one float accumulates and bf16 rounds once, at the store */
  for (int64_t c = 0; c < C; c++) {
    float dgamma = 0.0f, dbeta = 0.0f;
    for (int64_t m = 0; m < M; m++) {
      const float norm = (load(args->inp, m * C + c, dtype) - args->mean[m]) * args->rstd[m];
      const float dout = load(args->dout, m * C + c, dtype);
      dgamma += dout * norm;
      dbeta += dout;
    }
    store(args->dgamma_out, c, dtype, load(args->dgamma_in, c, dtype) + dgamma);
    store(args->dbeta_out, c, dtype, load(args->dbeta_in, c, dtype) + dbeta);
  }
}
