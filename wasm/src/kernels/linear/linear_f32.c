/* linear_f32_4x8: f32 weights; f16 ones are widened to f32 panels first. */
#include "kernels/linear/block_dot.h"

V_INLINE v128_t multiply_add(v128_t a, v128_t b, v128_t c) {
#ifdef __wasm_relaxed_simd__
  return wasm_f32x4_relaxed_madd(a, b, c); /* fused where the machine can */
#else
  return v_muladd(a, b, c);
#endif
}

V_INLINE void tile(const uint32_t rows, const float *x, const float *w, uint32_t k,
                   const v_tile_out *to) {
  v_columns sum[V_TILE_ROWS];
  V_UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = v_zero_columns();
  V_KEEP_LOOP for (; k > 0; k--, x += V_TILE_ROWS, w += V_PANEL) {
    V_BASE(x);
    V_BASE(w);
    const v128_t w0 = v_load(w), w1 = v_load(w + 4);
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      const v128_t a = wasm_v128_load32_splat(x + r);
      sum[r].lo = multiply_add(a, w0, sum[r].lo);
      sum[r].hi = multiply_add(a, w1, sum[r].hi);
    }
  }
  V_UNROLL for (uint32_t r = 0; r < rows; r++) v_finish_row(sum[r], to, r);
}

void v_linear_f32_4x8(const float *x, uint32_t rows, const float *panel, uint32_t k,
                      const v_tile_out *to) {
  switch (rows) {
    case 1: tile(1, x, panel, k, to); break;
    case 2: tile(2, x, panel, k, to); break;
    case 3: tile(3, x, panel, k, to); break;
    default: tile(4, x, panel, k, to); break;
  }
}
