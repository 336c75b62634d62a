/* Token and position embedding, and the gradients of its two tables. */
#include <stdbool.h>

#include "element.h"
#include "kdvfs/ref.h"
#include "kdvfs/rounding.h"

void kdvfs_ref_embedding_forward(const kdvfs_embedding_forward *args) {
  const int64_t M = args->M, T = args->T, C = args->C;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t m = 0; m < M; m++) {
    const int64_t id = args->ids[m], t = m % T;
    for (int64_t c = 0; c < C; c++) {
      store(args->out, m * C + c, dtype, load(args->wte, id * C + c, dtype) + load(args->wpe, t * C + c, dtype));
    }
  }
}

/* Many small gradients go into one row: rounded to nearest, each that is less than half a step would be lost. */
static void store_stochastic(void *table, int64_t i, kdvfs_dtype dtype, float value, uint32_t seed) {
  if (dtype == KDVFS_BF16) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)table)[i] = kdvfs_round_stochastic(bits, (uint32_t)i, seed);
  } else {
    store(table, i, dtype, value);
  }
}

void kdvfs_ref_wpe_backward(const kdvfs_wpe_backward *args) {
  const int64_t M = args->M, T = args->T, C = args->C;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t t = 0; t < T; t++) {
    for (int64_t c = 0; c < C; c++) {
      float sum = 0.0f;
      for (int64_t m = t; m < M; m += T) {
        sum += load(args->dout, m * C + c, dtype);
      }
      const int64_t i = t * C + c;
      store_stochastic(args->dwpe_out, i, dtype, load(args->dwpe_in, i, dtype) + sum, args->seed);
    }
  }
}

static bool occurs_before(const int32_t *ids, int64_t m) {
  for (int64_t earlier = 0; earlier < m; earlier++) {
    if (ids[earlier] == ids[m]) {
      return true;
    }
  }
  return false;
}

void kdvfs_ref_wte_backward(const kdvfs_wte_backward *args) {
  const int64_t M = args->M, C = args->C;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t first = 0; first < M; first++) {
    /* the first token of an id sums up all of them, so that a row is written once */
    if (occurs_before(args->ids, first)) {
      continue;
    }
    const int32_t id = args->ids[first];
    for (int64_t c = 0; c < C; c++) {
      float sum = 0.0f;
      for (int64_t m = first; m < M; m++) {
        if (args->ids[m] == id) {
          sum += load(args->dout, m * C + c, dtype);
        }
      }
      const int64_t i = id * C + c;
      store_stochastic(args->dwte_out, i, dtype, load(args->dwte_in, i, dtype) + sum, args->seed);
    }
  }
}
