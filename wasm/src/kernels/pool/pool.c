/* TOKENS -> SEQS over each sequence's tokens after its first pool_skip. The weighted mean
 * counts the skipped tokens too, as sentence-transformers does: token i of the sequence
 * weighs i + 1. */
#include "kernels/kernels.h"
#include "math/exponential.h"

#define COLUMNS_PER_TILE 256

uint32_t v_pool_tiles(const v_task *t) {
  return t->num_seqs * v_ceil_div(v_width(t, t->op->ins[V_POOL_X]), COLUMNS_PER_TILE);
}

/* Four columns: token after token, so the order of the sum is the order of the text. */
static v128_t pool(const float *x, uint32_t width, uint32_t skip, uint32_t n, uint32_t lanes,
                   v_pool_mode mode) {
  v128_t first = v_at(x, lanes), y = first;
  switch (mode) {
    case V_POOL_CLS: return first;
    case V_POOL_LAST: return v_at(x + (size_t)(n - 1) * width, lanes);
    case V_POOL_MAX:
      for (uint32_t i = 1; i < n; i++) y = wasm_f32x4_max(y, v_at(x + (size_t)i * width, lanes));
      return y;
    case V_POOL_WEIGHTED_MEAN: {
      y = v_mul(first, v_splat((float)(skip + 1)));
      for (uint32_t i = 1; i < n; i++) {
        y = v_muladd(v_at(x + (size_t)i * width, lanes), v_splat((float)(skip + i + 1)), y);
      }
      return v_div(y, v_splat((float)(((uint64_t)2 * skip + n + 1) * n) / 2));
    }
    case V_POOL_MEAN:
    case V_POOL_MEAN_SQRT_LEN:
      for (uint32_t i = 1; i < n; i++) y = v_add(y, v_at(x + (size_t)i * width, lanes));
      return v_div(y, v_splat(mode == V_POOL_MEAN ? (float)n : __builtin_sqrtf((float)n)));
  }
  return y;
}

void v_pool_run(v_task *t, uint32_t tile) {
  const uint32_t width = v_width(t, t->op->ins[V_POOL_X]);
  const v_seq *seq = &t->ws->seqs[tile % t->num_seqs];
  const uint32_t from = tile / t->num_seqs * COLUMNS_PER_TILE;
  const uint32_t columns = v_min_u32(COLUMNS_PER_TILE, width - from);
  const float *x = v_in(t, V_POOL_X) + (size_t)(seq->first_token + seq->pool_skip) * width + from;
  float *y = v_slot(t, t->op->out) + (size_t)(tile % t->num_seqs) * v_width(t, t->op->out) +
             t->op->uints[V_POOL_OUT_OFFSET] + from;
  V_FOR_COLUMNS(i, lanes, columns) {
    v_put(y + i,
          pool(x + i, width, seq->pool_skip, seq->num_tokens - seq->pool_skip, lanes,
               (v_pool_mode)t->op->uints[V_POOL_MODE]),
          lanes);
  }
}
