/* Rotary position embedding of `heads` heads; the other columns are copied. */
#include "kernels/kernels.h"
#include "math/trigonometric.h"

#define PAIRS 64 /* rotated at once: their sines and cosines serve every head */

typedef struct {
  float sine[PAIRS], cosine[PAIRS];
} v_angles;

static void angles(v_angles *a, const float *inv_freq, uint32_t pairs, uint32_t position,
                   float scale) {
  V_FOR_COLUMNS(i, lanes, pairs) {
    v128_t s, c;
    v_sincos(position, v_at(inv_freq + i, lanes), &s, &c);
    v_store(a->sine + i, v_mul(s, v_splat(scale)));
    v_store(a->cosine + i, v_mul(c, v_splat(scale)));
  }
}

/* Pairs (i, i + half): two runs of columns. */
static void rotate_halves(const v_angles *a, const float *x, float *y, uint32_t half,
                          uint32_t pairs) {
  V_FOR_COLUMNS(i, lanes, pairs) {
    v128_t s = v_load(a->sine + i), c = v_load(a->cosine + i);
    v128_t x0 = v_at(x + i, lanes), x1 = v_at(x + half + i, lanes);
    v_put(y + i, v_sub(v_mul(x0, c), v_mul(x1, s)), lanes);
    v_put(y + half + i, v_add(v_mul(x1, c), v_mul(x0, s)), lanes);
  }
}

/* Pairs (2i, 2i + 1). */
static void rotate_interleaved(const v_angles *a, const float *x, float *y, uint32_t pairs) {
  for (uint32_t i = 0; i < pairs; i++) {
    const float x0 = x[2 * i], x1 = x[2 * i + 1];
    y[2 * i] = x0 * a->cosine[i] - x1 * a->sine[i];
    y[2 * i + 1] = x1 * a->cosine[i] + x0 * a->sine[i];
  }
}

void v_rope_run(v_task *t, uint32_t tile) {
  const v_op_record *op = t->op;
  const uint32_t width = v_width(t, op->out), dim = op->uints[V_ROPE_HEAD_DIM];
  const uint32_t half = op->uints[V_ROPE_ROTARY_DIM] / 2, offset = op->uints[V_ROPE_OFFSET];
  const float *inv_freq = v_vector(t, V_ROPE_INV_FREQ);
  v_angles a;
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    const float *x = v_in(t, V_ROPE_X) + (size_t)r * width;
    float *y = v_slot(t, op->out) + (size_t)r * width;
    if (x != y) v_copy_floats(y, x, width);
    for (uint32_t from = 0; from < half; from += PAIRS) {
      const uint32_t pairs = v_min_u32(PAIRS, half - from);
      angles(&a, inv_freq + from, pairs, t->ws->positions[r], op->floats[V_ROPE_SCALE]);
      for (uint32_t h = 0; h < op->uints[V_ROPE_HEADS]; h++) {
        const size_t head = offset + (size_t)h * dim;
        if (op->flags & V_FLAG_INTERLEAVED) {
          rotate_interleaved(&a, y + head + 2 * from, y + head + 2 * from, pairs);
        } else {
          rotate_halves(&a, y + head + from, y + head + from, half, pairs);
        }
      }
    }
  }
}
