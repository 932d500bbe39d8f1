/* linear_i4b32_4x8: 4-bit weights, 8-bit activations, blocks of 32. */
#include "kernels/linear/block_dot.h"

/* The codes of group g (k < 16) and of the group 16 k later, from shared bytes. */
V_INLINE void load_groups(const v_block_i4 *w, uint32_t g, v_columns *low, v_columns *high) {
  const uint8_t *p = w->codes + g * (V_PANEL * V_GROUP);
  const v128_t nibble = wasm_i8x16_const_splat(15);
#ifdef __wasm_relaxed_simd__
  const v128_t c0 = v_load(p), c1 = v_load(p + 16);
  *low = (v_columns){wasm_v128_and(c0, nibble), wasm_v128_and(c1, nibble)};
  *high = (v_columns){wasm_u8x16_shr(c0, 4), wasm_u8x16_shr(c1, 4)};
#else
  const v128_t c = v_load(p), l = wasm_v128_and(c, nibble), h = wasm_u8x16_shr(c, 4);
  *low = (v_columns){wasm_i16x8_extend_low_i8x16(l), wasm_i16x8_extend_high_i8x16(l)};
  *high = (v_columns){wasm_i16x8_extend_low_i8x16(h), wasm_i16x8_extend_high_i8x16(h)};
#endif
}

V_INLINE void tile(const uint32_t rows, const v_quantized *q, uint32_t row, const v_block_i4 *w,
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
    for (uint32_t g = 0; g < V_BLOCK / 2 / V_GROUP; g++) {
      v_columns low, high;
      load_groups(w, g, &low, &high);
      V_UNROLL for (uint32_t r = 0; r < rows; r++) {
        v_dot_group(&dot[r], a + r * a_stride + b * V_BLOCK + g * V_GROUP, low);
      }
      V_UNROLL for (uint32_t r = 0; r < rows; r++) {
        v_dot_group(&dot[r], a + r * a_stride + b * V_BLOCK + g * V_GROUP + V_BLOCK / 2, high);
      }
    }
    const v_columns scale = {v_f16x4_to_f32x4(w->scale), v_f16x4_to_f32x4(w->scale + 4)};
    const v_columns min = {v_f16x4_to_f32x4(w->min), v_f16x4_to_f32x4(w->min + 4)};
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      v_add_block(&sum[r], dot[r], scale, min, sa + r * s_stride + b, code_sum + r * s_stride + b);
    }
  }
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    v_store(out + r * out_stride, sum[r].lo);
    v_store(out + r * out_stride + 4, sum[r].hi);
  }
}

void v_linear_i4b32_tile(const v_quantized *q, uint32_t row, uint32_t rows,
                         const v_block_i4 *panel, float *out, uint32_t out_stride) {
  V_DISPATCH_ROWS(tile, rows, q, row, panel, out, out_stride)
}
