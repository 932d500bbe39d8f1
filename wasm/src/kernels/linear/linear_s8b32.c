/* linear_s8b32_4x8: signed 8-bit weights, blocks of 32. */
#include "kernels/linear/few_rows.h"

#define GROUP_BYTES (V_PANEL * V_GROUP)

/* Adds the integers of `panels` panels, 16 bytes of group g of lane l at a[g][l]. */
#ifdef __wasm_relaxed_simd__
/* q = (q & 127) - 128 * (q < 0): two dot products whose second operands fit in 0..127, the
 * sign's as 64 * (q < 0). At most two lanes times panels, for which V8 has registers. */
V_INLINE void dot_groups(const uint32_t lanes, const uint32_t panels, v_columns *dot,
                         const v_activation_group *a, const v_block_s8 *const *w) {
  const v128_t low_bits = V_I32(0x7f7f7f7f), sign_bit = V_I32((int32_t)0x80808080);
  v_columns sign[2] = {v_zero_columns(), v_zero_columns()};
  const uint8_t *c[V_MAX_PANELS];
  V_UNROLL for (uint32_t p = 0; p < panels; p++) c[p] = w[p]->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++) {
    V_BASE(a);
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {
      V_BASE(c[p]);
      const v128_t c0 = v_load(c[p]), c1 = v_load(c[p] + 16);
      const v_columns low = {wasm_v128_and(c0, low_bits), wasm_v128_and(c1, low_bits)};
      const v_columns high = {wasm_u16x8_shr(wasm_v128_and(c0, sign_bit), 1),
                              wasm_u16x8_shr(wasm_v128_and(c1, sign_bit), 1)};
      V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
        v_dot_group(&dot[l * panels + p], (*a)[l], low);
        v_dot_group(&sign[l * panels + p], (*a)[l], high);
      }
      c[p] += GROUP_BYTES;
    }
  }
  V_UNROLL for (uint32_t i = 0; i < lanes * panels; i++) {
    dot[i].lo = wasm_i32x4_sub(dot[i].lo, wasm_i32x4_shl(sign[i].lo, 1));
    dot[i].hi = wasm_i32x4_sub(dot[i].hi, wasm_i32x4_shl(sign[i].hi, 1));
  }
}
#else
V_INLINE void dot_groups(const uint32_t lanes, const uint32_t panels, v_columns *dot,
                         const v_activation_group *a, const v_block_s8 *const *w) {
  const uint8_t *c[V_MAX_PANELS];
  V_UNROLL for (uint32_t p = 0; p < panels; p++) c[p] = w[p]->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++) {
    V_BASE(a);
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {
      V_BASE(c[p]);
      const v_columns codes = {wasm_i16x8_load8x8(c[p]), wasm_i16x8_load8x8(c[p] + 8)};
      V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
        v_dot_group(&dot[l * panels + p], (*a)[l], codes);
      }
      c[p] += GROUP_BYTES;
    }
  }
}
#endif

/* Two lanes at a time. */
V_INLINE void dot_panels(const uint32_t lanes, const uint32_t panels, v_columns *dot,
                         const v_activation_block *x, const v_block_s8 *const *w) {
  V_UNROLL for (uint32_t l = 0; l < lanes; l += 2) {
    /* Groups as seen from lane l: the codes of lane l + 1 lie next to its own. */
    dot_groups(lanes - l < 2 ? 1 : 2, panels, dot + l * panels,
               (const v_activation_group *)(const void *)x->codes[0][l], w);
  }
}
V_INLINE void dot_block(const uint32_t lanes, v_columns *dot, const v_activation_block *x,
                        const v_block_s8 *w) {
  dot_panels(lanes, 1, dot, x, &w);
}

V_INLINE v_wide_scales widen(const v_block_s8 *w) {
  return (v_wide_scales){.scale = v_widen_columns(w->scale)};
}

V_INLINE void add_panel(v_columns *sum, v_columns dot, const v_wide_scales *w,
                        const v_activation_block *x, uint32_t row) {
  v_add_scaled(sum, dot, w->scale, x, row);
}

V_DEFINE_TILE(v_linear_s8b32_4x8, v_block_s8, dot_block, v_add_symmetric_block)

V_DEFINE_FEW_ROWS(v_linear_s8b32_few, v_block_s8, 2, dot_panels, widen, add_panel)

void v_widen_scales_s8(v_block_scales *to, const v_block_s8 *panel, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++) {
    V_UNROLL for (uint32_t c = 0; c < V_PANEL; c += 4) {
      v_store(to[b].scale + c, v_f16x4_to_f32x4(panel[b].scale + c));
    }
  }
}
