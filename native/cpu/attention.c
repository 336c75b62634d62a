/* Fused causal attention and its gradient, on queries, keys and values as one tensor (B, T, 3, NH, HS). */
#include <math.h>

#include "element.h"
#include "kdvfs/ref.h"

enum { QUERY, KEY, VALUE };

/* Where the row of HS channels of one part, head and position begins in qkv and in dqkv. */
static int64_t row_in_qkv(int64_t T, int64_t NH, int64_t HS, int64_t b, int64_t t, int part, int64_t n) {
  return (((b * T + t) * 3 + part) * NH + n) * HS;
}

/* The same in out and in dout. */
static int64_t row_in_out(int64_t T, int64_t NH, int64_t HS, int64_t b, int64_t t, int64_t n) {
  return ((b * T + t) * NH + n) * HS;
}

static float dot(const void *x, int64_t x_row, const void *y, int64_t y_row, int64_t HS, kdvfs_dtype dtype) {
  float sum = 0.0f;
  for (int64_t h = 0; h < HS; h++) {
    sum += load(x, x_row + h, dtype) * load(y, y_row + h, dtype);
  }
  return sum;
}

void kdvfs_ref_attention_forward(const kdvfs_attention_forward *args) {
  const int64_t T = args->T, NH = args->NH, HS = args->HS;
  const kdvfs_dtype dtype = args->dtype;
  const void *const qkv = args->qkv;
  for (int64_t b = 0; b < args->B; b++) {
    for (int64_t n = 0; n < NH; n++) {
      for (int64_t t = 0; t < T; t++) {
        const int64_t q = row_in_qkv(T, NH, HS, b, t, QUERY, n);
        /* online: what was added so far is scaled down whenever a larger score comes */
        float largest = -INFINITY, sum = 0.0f, values[KDVFS_LARGEST_HEAD] = {0};
        for (int64_t u = 0; u <= t; u++) {
          const float score = args->scale * dot(qkv, q, qkv, row_in_qkv(T, NH, HS, b, u, KEY, n), HS, dtype);
          const float raised = fmaxf(largest, score);
          const float keep = expf(largest - raised), weight = expf(score - raised);
          const int64_t v = row_in_qkv(T, NH, HS, b, u, VALUE, n);
          for (int64_t h = 0; h < HS; h++) {
            values[h] = values[h] * keep + weight * load(qkv, v + h, dtype);
          }
          sum = sum * keep + weight;
          largest = raised;
        }
        const int64_t out = row_in_out(T, NH, HS, b, t, n);
        for (int64_t h = 0; h < HS; h++) {
          store(args->out, out + h, dtype, values[h] / sum);
        }
        args->lse[(b * NH + n) * T + t] = largest + logf(sum);
      }
    }
  }
}

/* One weight of the softmax, and the gradient of its score times `scale`. */
typedef struct {
  float weight, dscore;
} Pair;

static Pair pair_of(const kdvfs_attention_backward *args, int64_t b, int64_t n, int64_t t, int64_t u) {
  const int64_t T = args->T, NH = args->NH, HS = args->HS, out = row_in_out(T, NH, HS, b, t, n);
  const kdvfs_dtype dtype = args->dtype;
  const float score = args->scale * dot(args->qkv, row_in_qkv(T, NH, HS, b, t, QUERY, n), args->qkv,
                                        row_in_qkv(T, NH, HS, b, u, KEY, n), HS, dtype);
  const float weight = expf(score - args->lse[(b * NH + n) * T + t]);
  const float dweight = dot(args->dout, out, args->qkv, row_in_qkv(T, NH, HS, b, u, VALUE, n), HS, dtype);
  /* the weights sum to 1 whatever the scores are: the mean of dweight under them, out . dout, has no effect */
  const float mean = dot(args->dout, out, args->out, out, HS, dtype);
  return (Pair){weight, args->scale * weight * (dweight - mean)};
}

void kdvfs_ref_attention_backward(const kdvfs_attention_backward *args) {
  const int64_t T = args->T, NH = args->NH, HS = args->HS;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t b = 0; b < args->B; b++) {
    for (int64_t n = 0; n < NH; n++) {
      for (int64_t row = 0; row < T; row++) {
        float dq[KDVFS_LARGEST_HEAD] = {0}, dk[KDVFS_LARGEST_HEAD] = {0}, dv[KDVFS_LARGEST_HEAD] = {0};
        for (int64_t u = 0; u <= row; u++) {
          const float dscore = pair_of(args, b, n, row, u).dscore;
          const int64_t k = row_in_qkv(T, NH, HS, b, u, KEY, n);
          for (int64_t h = 0; h < HS; h++) {
            dq[h] += dscore * load(args->qkv, k + h, dtype);
          }
        }
        for (int64_t t = row; t < T; t++) {
          const Pair pair = pair_of(args, b, n, t, row);
          const int64_t q = row_in_qkv(T, NH, HS, b, t, QUERY, n), out = row_in_out(T, NH, HS, b, t, n);
          for (int64_t h = 0; h < HS; h++) {
            dk[h] += pair.dscore * load(args->qkv, q + h, dtype);
            dv[h] += pair.weight * load(args->dout, out + h, dtype);
          }
        }
        for (int64_t h = 0; h < HS; h++) {
          store(args->dqkv, row_in_qkv(T, NH, HS, b, row, QUERY, n) + h, dtype, dq[h]);
          store(args->dqkv, row_in_qkv(T, NH, HS, b, row, KEY, n) + h, dtype, dk[h]);
          store(args->dqkv, row_in_qkv(T, NH, HS, b, row, VALUE, n) + h, dtype, dv[h]);
        }
      }
    }
  }
}
