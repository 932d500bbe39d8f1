/* out = x / max(||x||_2, eps), and the check that closes a step. */
#include "kernels/kernels.h"
#include "math/exponential.h"

#define SEQS_PER_TILE 8

void v_normalize_run(v_task *t, uint32_t tile) {
  const uint32_t width = v_width(t, t->op->out);
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    const float *x = v_in(t, V_NORMALIZE_X) + (size_t)r * width;
    float *y = v_slot(t, t->op->out) + (size_t)r * width;
    v128_t squares = V_F32(0);
    V_FOR_COLUMNS(i, lanes, width) {
      v128_t v = v_at(x + i, lanes);
      squares = v_muladd(v, v, squares);
    }
    float norm = __builtin_sqrtf(v_sum_lanes(squares));
    const float eps = t->op->floats[V_NORMALIZE_EPS];
    if (norm < eps) norm = eps; /* NaN stays */
    V_FOR_COLUMNS(i, lanes, width) {
      v_put(y + i, v_div(v_at(x + i, lanes), v_splat(norm)), lanes);
    }
  }
}

uint32_t v_finite_tiles(const v_task *t) { return v_ceil_div(t->num_seqs, SEQS_PER_TILE); }

bool v_all_finite(const float *x, size_t n) {
  const v128_t exponent = wasm_i32x4_const_splat(0x7f800000);
  v128_t bad = wasm_i32x4_const_splat(0);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    bad = wasm_v128_or(bad, wasm_i32x4_eq(wasm_v128_and(v_load(x + i), exponent), exponent));
  }
  bool finite = !wasm_v128_any_true(bad);
  for (; i < n; i++) finite &= v_is_finite(x[i]);
  return finite;
}

void v_finite_run(v_task *t, uint32_t tile) {
  const int32_t slot = (int32_t)t->model->program.header->output_slot;
  const size_t width = v_width(t, slot);
  const bool tokens = t->model->program.slots[slot].rows == V_ROWS_TOKENS;
  const uint32_t end = v_min_u32((tile + 1) * SEQS_PER_TILE, t->num_seqs);
  for (uint32_t s = tile * SEQS_PER_TILE; s < end; s++) {
    const v_seq *seq = &t->ws->seqs[s];
    const size_t first = tokens ? seq->first_token : s, rows = tokens ? seq->num_tokens : 1;
    t->ws->status[s] = !v_all_finite(v_slot(t, slot) + first * width, rows * width);
  }
}
