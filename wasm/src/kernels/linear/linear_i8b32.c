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

V_INLINE void tile(const uint32_t rows, const v_quantized *q, uint32_t row, const v_block_i8 *w,
                   float *out, uint32_t out_stride) {
  const v_activation_code *a = q->codes + (size_t)row * q->blocks * V_BLOCK;
  const float *sa = q->scale + (size_t)row * q->blocks, *code_sum = q->sum + (size_t)row * q->blocks;
  const size_t a_stride = (size_t)q->blocks * V_BLOCK, s_stride = q->blocks;
  v_columns sum[V_TILE_ROWS];
  V_UNROLL for (uint32_t r = 0; r < rows; r++) sum[r] = (v_columns){V_F32(0), V_F32(0)};
  for (uint32_t b = 0; b < q->blocks; b++, w++) {
    v_columns dot[V_TILE_ROWS];
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      dot[r] = (v_columns){wasm_i32x4_const_splat(0), wasm_i32x4_const_splat(0)};
    }
    for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++) {
      const v_columns codes = load_group(w, g);
      V_UNROLL for (uint32_t r = 0; r < rows; r++) {
        v_dot_group(&dot[r], a + r * a_stride + b * V_BLOCK + g * V_GROUP, codes);
      }
    }
    const v_columns scale = {v_load(w->scale), v_load(w->scale + 4)};
    const v_columns min = {v_load(w->min), v_load(w->min + 4)};
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      v_add_block(&sum[r], dot[r], scale, min, sa + r * s_stride + b, code_sum + r * s_stride + b);
    }
  }
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    v_store(out + r * out_stride, sum[r].lo);
    v_store(out + r * out_stride + 4, sum[r].hi);
  }
}

void v_linear_i8b32_tile(const v_quantized *q, uint32_t row, uint32_t rows,
                         const v_block_i8 *panel, float *out, uint32_t out_stride) {
  V_DISPATCH_ROWS(tile, rows, q, row, panel, out, out_stride)
}
