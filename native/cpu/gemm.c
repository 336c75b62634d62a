/* Batched matrix product of the three layouts, with bias and accumulation. */
#include "element.h"
#include "kdvfs/ref.h"

/* Neighbours in a row of d that are summed side by side, so that a b whose columns lie far apart is not read
 * one element per cache line. The order of each sum stays that of k. */
#define COLUMNS 16

void kdvfs_ref_gemm(const kdvfs_gemm *args) {
  const int64_t M = args->M, N = args->N, K = args->K;
  const kdvfs_dtype dtype = args->dtype;
  /* op(a)[m, k] and op(b)[k, n] as strides into what is stored */
  const int64_t a_m = args->layout == KDVFS_NT ? 1 : K, a_k = args->layout == KDVFS_NT ? M : 1;
  const int64_t b_k = args->layout == KDVFS_TN ? 1 : N, b_n = args->layout == KDVFS_TN ? K : 1;
  for (int64_t i = 0; i < args->count; i++) {
    for (int64_t m = 0; m < M; m++) {
      for (int64_t first = 0; first < N; first += COLUMNS) {
        const int64_t columns = first + COLUMNS < N ? COLUMNS : N - first;
        float sums[COLUMNS] = {0};
        for (int64_t k = 0; k < K; k++) {
          const float a = load(args->a, i * M * K + m * a_m + k * a_k, dtype);
          for (int64_t n = 0; n < columns; n++) {
            sums[n] += a * load(args->b, i * K * N + k * b_k + (first + n) * b_n, dtype);
          }
        }
        for (int64_t n = 0; n < columns; n++) {
          const int64_t element = (i * M + m) * N + first + n;
          const float bias = args->has_bias ? load(args->bias, first + n, dtype) : 0.0f;
          const float c = args->accumulate ? load(args->c, element, dtype) : 0.0f;
          store(args->d, element, dtype, sums[n] + bias + c);
        }
      }
    }
  }
}
