/* Gradient of a bias: column sums, over all rows or over groups of rows that bias_reduce adds up. */
#include "element.h"
#include "kdvfs/ref.h"

static float column_sum(const kdvfs_bias_backward *args, int64_t column, int64_t from, int64_t to) {
  float sum = 0.0f;
  for (int64_t m = from; m < to; m++) {
    sum += load(args->dout, m * args->OC + column, args->dtype);
  }
  return sum;
}

void kdvfs_ref_bias_backward(const kdvfs_bias_backward *args) {
  const int64_t M = args->M, OC = args->OC, G = args->G;
  const kdvfs_dtype dtype = args->dtype;
  if (G == 1) {
    for (int64_t c = 0; c < OC; c++) {
      store(args->dbias_out, c, dtype, load(args->dbias_in, c, dtype) + column_sum(args, c, 0, M));
    }
    return;
  }
  const int64_t R = (M + G - 1) / G;
  for (int64_t g = 0; g < G; g++) {
    /* the last groups have fewer rows, or none */
    const int64_t from = g * R, to = from + R < M ? from + R : M;
    for (int64_t c = 0; c < OC; c++) {
      args->partials[g * OC + c] = column_sum(args, c, from, to);
    }
  }
}

void kdvfs_ref_bias_reduce(const kdvfs_bias_reduce *args) {
  const int64_t OC = args->OC;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t c = 0; c < OC; c++) {
    float sum = 0.0f;
    for (int64_t g = 0; g < args->G; g++) {
      sum += args->partials[g * OC + c];
    }
    store(args->dbias_out, c, dtype, load(args->dbias_in, c, dtype) + sum);
  }
}
