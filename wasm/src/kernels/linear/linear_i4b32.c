/* linear_i4b32_4x8: 4-bit weights, blocks of 32. */
#include "kernels/linear/few_rows.h"

#define GROUP_BYTES (V_PANEL * V_GROUP)
#define HALF (V_BLOCK / 2 / V_GROUP) /* groups from one nibble to the other */

/* x86 has no shift of bytes; engines emulate it at more cost than this. */
V_INLINE v128_t high_nibbles(v128_t codes, v128_t nibble) {
  return wasm_v128_and(wasm_u16x8_shr(codes, 4), nibble);
}

/* The codes of group g (k < 16) and of the group 16 k later, from shared bytes. */
V_INLINE void load_groups(const uint8_t *p, v_columns *low, v_columns *high) {
  const v128_t nibble = V_I32(0x0f0f0f0f);
#ifdef __wasm_relaxed_simd__
  const v128_t c0 = v_load(p), c1 = v_load(p + 16);
  *low = (v_columns){wasm_v128_and(c0, nibble), wasm_v128_and(c1, nibble)};
  *high = (v_columns){high_nibbles(c0, nibble), high_nibbles(c1, nibble)};
#else
  const v128_t c = v_load(p), l = wasm_v128_and(c, nibble), h = high_nibbles(c, nibble);
  *low = (v_columns){wasm_i16x8_extend_low_i8x16(l), wasm_i16x8_extend_high_i8x16(l)};
  *high = (v_columns){wasm_i16x8_extend_low_i8x16(h), wasm_i16x8_extend_high_i8x16(h)};
#endif
}

V_INLINE void dot_block(const uint32_t lanes, v_columns *dot, const v_activation_block *x,
                        const v_block_i4 *w) {
  const v_activation_group *a = x->codes;
  const uint8_t *c = w->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < HALF; g++, a++, c += GROUP_BYTES) {
    V_BASE(a);
    V_BASE(c);
    v_columns low, high;
    load_groups(c, &low, &high);
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_dot_group(&dot[l], a[0][l], low);
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_dot_group(&dot[l], a[HALF][l], high);
  }
}

V_DEFINE_TILE(v_linear_i4b32_4x8, v_block_i4, dot_block, v_add_block)

V_INLINE void dot_panels(const uint32_t lanes, const uint32_t panels, v_columns *dot,
                         const v_activation_block *x, const v_block_i4 *const *w) {
  const v_activation_group *a = x->codes;
  const uint8_t *c[V_MAX_PANELS];
  V_UNROLL for (uint32_t p = 0; p < panels; p++) c[p] = w[p]->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < HALF; g++, a++) {
    V_BASE(a);
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {
      V_BASE(c[p]);
      v_columns low, high;
      load_groups(c[p], &low, &high);
      V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
        v_dot_group(&dot[l * panels + p], a[0][l], low);
        v_dot_group(&dot[l * panels + p], a[HALF][l], high);
      }
      c[p] += GROUP_BYTES;
    }
  }
}

V_INLINE v_wide_scales widen(const v_block_i4 *w) {
  return (v_wide_scales){v_widen_columns(w->scale), v_widen_columns(w->min)};
}

V_INLINE void add_panel(v_columns *sum, v_columns dot, const v_wide_scales *w,
                        const v_activation_block *x, uint32_t row) {
  v_add_scaled(sum, dot, w->scale, x, row);
  v_add_min(sum, w->min, x, row);
}

V_DEFINE_FEW_ROWS(v_linear_i4b32_few, v_block_i4, 4, dot_panels, widen, add_panel)

void v_widen_scales_i4(v_block_scales *to, const v_block_i4 *panel, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++) v_widen_scales(to + b, panel[b].scale, panel[b].min);
}
