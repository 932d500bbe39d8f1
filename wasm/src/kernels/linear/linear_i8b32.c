/* linear_i8b32_4x8: 7-bit weights, 8-bit activations, blocks of 32. */
#include "kernels/linear/block_dot.h"

V_INLINE v_columns load_group(const v_block_i8 *w, uint32_t g) {
  const uint8_t *p = w->codes + g * (V_PANEL * V_GROUP);
#ifdef __wasm_relaxed_simd__
  return (v_columns){v_load(p), v_load(p + 16)};
#else
  return (v_columns){wasm_i16x8_load8x8(p), wasm_i16x8_load8x8(p + 8)};
#endif
}

V_INLINE void tile(const uint32_t rows, const v_activation_block *x, const v_block_i8 *w,
                   const v_block_scales *scales, uint32_t blocks, float *out,
                   uint32_t out_stride) {
  v_columns sum[V_TILE_ROWS];
  V_UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = v_zero_columns();
  for (; blocks > 0; blocks--, x++, w++, scales++) {
    v_columns dot[V_TILE_ROWS];
    V_UNROLL for (uint32_t r = 0; r < rows; r++) dot[r] = v_zero_columns();
    V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++) {
      const v_columns codes = load_group(w, g);
      V_UNROLL for (uint32_t r = 0; r < rows; r++) v_dot_group(&dot[r], x->codes[g][r], codes);
    }
    V_UNROLL for (uint32_t r = 0; r < rows; r++) v_add_block(&sum[r], dot[r], scales, x, r);
  }
  V_UNROLL for (uint32_t r = 0; r < rows; r++) v_store_columns(out + r * out_stride, sum[r]);
}

void v_linear_i8b32_4x8(const v_activation_block *x, uint32_t rows, const v_block_i8 *panel,
                        const v_block_scales *scales, uint32_t blocks, float *out,
                        uint32_t out_stride) {
  V_DISPATCH_ROWS(tile, rows, x, panel, scales, blocks, out, out_stride)
}

void v_widen_scales_i8(v_block_scales *to, const v_block_i8 *panel, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++) v_widen_scales(to + b, panel[b].scale, panel[b].min);
}
