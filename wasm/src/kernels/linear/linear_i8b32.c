/* linear_i8b32_4x8: 7-bit weights, blocks of 32. */
#include "kernels/linear/block_dot.h"

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

void v_widen_scales_i8(v_block_scales *to, const v_block_i8 *panel, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++) v_widen_scales(to + b, panel[b].scale, panel[b].min);
}
