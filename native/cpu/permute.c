/* Between token order, in which the projections work, and head order, in which attention works. Rows of HS
 * channels are moved as they are: not through float, so that even a signalling NaN keeps its bits. */
#include "element.h"
#include "kdvfs/ref.h"

typedef struct {
  int64_t B, T, NH;
  size_t bytes; /* of a row of HS channels */
} Rows;

static Rows rows_of(int64_t B, int64_t T, int64_t NH, int64_t HS, kdvfs_dtype dtype) {
  return (Rows){B, T, NH, (size_t)HS * (dtype == KDVFS_BF16 ? sizeof(uint16_t) : sizeof(float))};
}

/* Where row (b, t, n) starts, in bytes, in a tensor (B, NH, T, HS). */
static size_t in_head_order(const Rows *rows, int64_t b, int64_t t, int64_t n) {
  return (size_t)((b * rows->NH + n) * rows->T + t) * rows->bytes;
}

/* The same in one part of a tensor (B, T, parts, NH, HS). */
static size_t in_token_order(const Rows *rows, int64_t parts, int64_t part, int64_t b, int64_t t, int64_t n) {
  return (size_t)(((b * rows->T + t) * parts + part) * rows->NH + n) * rows->bytes;
}

static void to_head_order(const Rows *rows, const char *tokens, int64_t parts, int64_t part, char *heads) {
  for (int64_t b = 0; b < rows->B; b++) {
    for (int64_t t = 0; t < rows->T; t++) {
      for (int64_t n = 0; n < rows->NH; n++) {
        memcpy(heads + in_head_order(rows, b, t, n), tokens + in_token_order(rows, parts, part, b, t, n), rows->bytes);
      }
    }
  }
}

static void to_token_order(const Rows *rows, const char *heads, char *tokens, int64_t parts, int64_t part) {
  for (int64_t b = 0; b < rows->B; b++) {
    for (int64_t t = 0; t < rows->T; t++) {
      for (int64_t n = 0; n < rows->NH; n++) {
        memcpy(tokens + in_token_order(rows, parts, part, b, t, n), heads + in_head_order(rows, b, t, n), rows->bytes);
      }
    }
  }
}

void kdvfs_ref_permute_qkv_forward(const kdvfs_permute_qkv_forward *args) {
  const Rows rows = rows_of(args->B, args->T, args->NH, args->HS, args->dtype);
  to_head_order(&rows, args->inp, 3, 0, args->q);
  to_head_order(&rows, args->inp, 3, 1, args->k);
  to_head_order(&rows, args->inp, 3, 2, args->v);
}

void kdvfs_ref_permute_qkv_backward(const kdvfs_permute_qkv_backward *args) {
  const Rows rows = rows_of(args->B, args->T, args->NH, args->HS, args->dtype);
  to_token_order(&rows, args->dq, args->dinp, 3, 0);
  to_token_order(&rows, args->dk, args->dinp, 3, 1);
  to_token_order(&rows, args->dv, args->dinp, 3, 2);
}

void kdvfs_ref_permute_heads_forward(const kdvfs_permute_heads_forward *args) {
  const Rows rows = rows_of(args->B, args->T, args->NH, args->HS, args->dtype);
  to_token_order(&rows, args->inp, args->out, 1, 0);
}

void kdvfs_ref_permute_heads_backward(const kdvfs_permute_heads_backward *args) {
  const Rows rows = rows_of(args->B, args->T, args->NH, args->HS, args->dtype);
  to_head_order(&rows, args->dout, 1, 0, args->dinp);
}
