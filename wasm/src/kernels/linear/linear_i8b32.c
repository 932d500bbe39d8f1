/* linear_i8b32_4x8: 7-bit weights, blocks of 32. */
#include "kernels/linear/few_rows.h"

#define GROUP_BYTES (V_PANEL * V_GROUP)

V_INLINE v_columns load_group(const uint8_t *p) {
#ifdef __wasm_relaxed_simd__
  return (v_columns){v_load(p), v_load(p + 16)};
#else
  return (v_columns){wasm_i16x8_load8x8(p), wasm_i16x8_load8x8(p + 8)};
#endif
}

V_INLINE void dot_block(const uint32_t lanes, v_columns *dot, const v_activation_block *x,
                        const v_block_i8 *w) {
  const v_activation_group *a = x->codes;
  const uint8_t *c = w->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++, c += GROUP_BYTES) {
    V_BASE(a);
    V_BASE(c);
    const v_columns codes = load_group(c);
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_dot_group(&dot[l], (*a)[l], codes);
  }
}

V_DEFINE_TILE(v_linear_i8b32_4x8, v_block_i8, dot_block, v_add_block)

V_INLINE void dot_panels(const uint32_t lanes, const uint32_t panels, v_columns *dot,
                         const v_activation_block *x, const v_block_i8 *const *w) {
  const v_activation_group *a = x->codes;
  const uint8_t *c[V_MAX_PANELS];
  V_UNROLL for (uint32_t p = 0; p < panels; p++) c[p] = w[p]->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++) {
    V_BASE(a);
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {
      V_BASE(c[p]);
      const v_columns codes = load_group(c[p]);
      V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
        v_dot_group(&dot[l * panels + p], (*a)[l], codes);
      }
      c[p] += GROUP_BYTES;
    }
  }
}

V_INLINE v_wide_scales widen(const v_block_i8 *w) {
  return (v_wide_scales){v_widen_columns(w->scale), v_widen_columns(w->min)};
}

V_INLINE void add_panel(v_columns *sum, v_columns dot, const v_wide_scales *w,
                        const v_activation_block *x, uint32_t row) {
  v_add_scaled(sum, dot, w->scale, x, row);
  v_add_min(sum, w->min, x, row);
}

V_DEFINE_FEW_ROWS(v_linear_i8b32_few, v_block_i8, 4, dot_panels, widen, add_panel)

void v_widen_scales_i8(v_block_scales *to, const v_block_i8 *panel, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++) v_widen_scales(to + b, panel[b].scale, panel[b].min);
}
