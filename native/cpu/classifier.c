/* Softmax over the vocabulary, cross-entropy loss, and the gradient of both in one. */
#include <math.h>

#include "element.h"
#include "kdvfs/ref.h"

void kdvfs_ref_classifier(const kdvfs_classifier *args) {
  const int64_t V = args->V;
  const kdvfs_dtype dtype = args->dtype;
  for (int64_t m = 0; m < args->M; m++) {
    const int64_t start = m * args->Vp, target = args->targets[m];
    /* the softmax is the same if all logits are shifted: from the largest on, exp cannot overflow */
    float largest = -INFINITY;
    for (int64_t v = 0; v < V; v++) {
      largest = fmaxf(largest, load(args->logits, start + v, dtype));
    }
    float sum = 0.0f;
    for (int64_t v = 0; v < V; v++) {
      sum += expf(load(args->logits, start + v, dtype) - largest);
    }
    /* log p as a difference: p itself may be too small for a float32 */
    const float log_p = load(args->logits, start + target, dtype) - largest - logf(sum);
    args->losses_out[m] = args->losses_in[m] - log_p;
    for (int64_t v = 0; v < V; v++) {
      const float p = expf(load(args->logits, start + v, dtype) - largest) / sum;
      store(args->dlogits, start + v, dtype, args->dloss * (p - (v == target ? 1.0f : 0.0f)));
    }
  }
}
