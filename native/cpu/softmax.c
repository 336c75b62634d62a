/* Causal softmax of attention scores and its gradient: position t attends to u <= t. */
#include <math.h>

#include "element.h"
#include "kdvfs/ref.h"

/* End of the sector that holds the diagonal's element of row t, or of the row. */
static int64_t sector_end(int64_t t, int64_t T) {
  const int64_t end = (t / KDVFS_SECTOR + 1) * KDVFS_SECTOR;
  return end < T ? end : T;
}

static void store_zeros(void *tensor, int64_t start, int64_t from, int64_t to, kdvfs_dtype dtype) {
  for (int64_t u = from; u < to; u++) {
    store(tensor, start + u, dtype, 0.0f);
  }
}

void kdvfs_ref_softmax_forward(const kdvfs_softmax_forward *args) {
  const int64_t T = args->T;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t row = 0; row < args->N * T; row++) {
    const int64_t start = row * T, t = row % T;
    /* the softmax is the same if all scores are shifted: from the largest on, exp cannot overflow */
    float largest = -INFINITY;
    for (int64_t u = 0; u <= t; u++) {
      largest = fmaxf(largest, load(args->pre, start + u, dtype));
    }
    float sum = 0.0f;
    for (int64_t u = 0; u <= t; u++) {
      sum += expf(args->scale * (load(args->pre, start + u, dtype) - largest));
    }
    for (int64_t u = 0; u <= t; u++) {
      const float exponential = expf(args->scale * (load(args->pre, start + u, dtype) - largest));
      store(args->att, start + u, dtype, exponential / sum);
    }
    store_zeros(args->att, start, t + 1, sector_end(t, T), dtype);
  }
}

void kdvfs_ref_softmax_backward(const kdvfs_softmax_backward *args) {
  const int64_t T = args->T;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t row = 0; row < args->N * T; row++) {
    const int64_t start = row * T, t = row % T;
    /* att sums to 1 whatever pre is: the gradient's mean under att has no effect on pre */
    float mean = 0.0f;
    for (int64_t u = 0; u <= t; u++) {
      mean += load(args->att, start + u, dtype) * load(args->datt, start + u, dtype);
    }
    for (int64_t u = 0; u <= t; u++) {
      const float att = load(args->att, start + u, dtype), datt = load(args->datt, start + u, dtype);
      store(args->dpre, start + u, dtype, args->scale * att * (datt - mean));
    }
    store_zeros(args->dpre, start, t + 1, args->skip_upper ? sector_end(t, T) : T, dtype);
  }
}
