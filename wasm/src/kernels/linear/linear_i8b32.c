/* linear_i8b32_4x8: 7-bit weights, 8-bit activations, blocks of 32. */
#include "kernels/linear/block_dot.h"

#define GROUP_BYTES (V_PANEL * V_GROUP)

V_INLINE v_columns load_group(const uint8_t *p) {
#ifdef __wasm_relaxed_simd__
  return (v_columns){v_load(p), v_load(p + 16)};
#else
  return (v_columns){wasm_i16x8_load8x8(p), wasm_i16x8_load8x8(p + 8)};
#endif
}

V_INLINE void tile(const uint32_t rows, const v_activation_block *x, const v_block_i8 *w,
                   const v_block_scales *scales, uint32_t blocks, const v_tile_out *to) {
  v_columns sum[V_TILE_ROWS];
  V_UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = v_zero_columns();
  for (; blocks > 0; blocks--, x++, w++, scales++) {
    v_columns dot[V_TILE_ROWS];
    V_UNROLL for (uint32_t r = 0; r < rows; r++) dot[r] = v_start_dot();
    const v_activation_group *a = x->codes;
    const uint8_t *c = w->codes;
    V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++, c += GROUP_BYTES) {
      V_BASE(a);
      V_BASE(c);
      const v_columns codes = load_group(c);
      V_UNROLL for (uint32_t r = 0; r < rows; r++) v_dot_group(&dot[r], (*a)[r], codes);
    }
    V_BASE(x);
    V_BASE(scales);
    V_UNROLL for (uint32_t r = 0; r < rows; r++) v_add_block(&sum[r], dot[r], scales, x, r);
  }
  v_finish_rows(rows, sum, to);
}

void v_linear_i8b32_4x8(const v_activation_block *x, uint32_t rows, const v_block_i8 *panel,
                        const v_block_scales *scales, uint32_t blocks, const v_tile_out *to) {
  V_DISPATCH_ROWS(tile, rows, x, panel, scales, blocks, to)
}

void v_widen_scales_i8(v_block_scales *to, const v_block_i8 *panel, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++) v_widen_scales(to + b, panel[b].scale, panel[b].min);
}
