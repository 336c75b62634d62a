/* GELU in its tanh form and its gradient (Hendrycks, Gimpel 2016, arXiv 1606.08415). */
#include <math.h>

#include "element.h"
#include "kdvfs/ref.h"

#define SQRT_2_OVER_PI 0.797884560802865356f
#define CUBIC 0.044715f

void kdvfs_ref_gelu_forward(const kdvfs_gelu_forward *args) {
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t i = 0; i < args->M * args->C; i++) {
    const float x = load(args->inp, i, dtype);
    const float tanh_u = tanhf(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
    store(args->out, i, dtype, 0.5f * x * (1.0f + tanh_u));
  }
}

void kdvfs_ref_gelu_backward(const kdvfs_gelu_backward *args) {
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t i = 0; i < args->M * args->C; i++) {
    const float x = load(args->inp, i, dtype);
    const float tanh_u = tanhf(SQRT_2_OVER_PI * (x + CUBIC * x * x * x));
    const float du = SQRT_2_OVER_PI * (1.0f + 3.0f * CUBIC * x * x);
    const float dgelu = 0.5f * (1.0f + tanh_u) + 0.5f * x * (1.0f - tanh_u * tanh_u) * du;
    store(args->dinp, i, dtype, load(args->dout, i, dtype) * dgelu);
  }
}
