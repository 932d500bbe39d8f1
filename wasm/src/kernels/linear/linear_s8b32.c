/* linear_s8b32_4x8: signed 8-bit weights, blocks of 32. */
#include "kernels/linear/block_dot.h"

#define GROUP_BYTES (V_PANEL * V_GROUP)

#ifdef __wasm_relaxed_simd__
/* q = (q & 127) - 128 * (q < 0): two dot products whose second operands fit in 0..127, the
 * sign's as 64 * (q < 0). Two lanes at a time, for which V8 has registers. */
V_INLINE void dot_lanes(const uint32_t lanes, v_columns *dot, const v_activation_group *a,
                        const uint8_t *c) {
  const v128_t low_bits = V_I32(0x7f7f7f7f), sign_bit = V_I32((int32_t)0x80808080);
  v_columns sign[2] = {v_zero_columns(), v_zero_columns()};
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++, c += GROUP_BYTES) {
    V_BASE(a);
    V_BASE(c);
    const v128_t c0 = v_load(c), c1 = v_load(c + 16);
    const v_columns low = {wasm_v128_and(c0, low_bits), wasm_v128_and(c1, low_bits)};
    const v_columns high = {wasm_u16x8_shr(wasm_v128_and(c0, sign_bit), 1),
                            wasm_u16x8_shr(wasm_v128_and(c1, sign_bit), 1)};
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_dot_group(&dot[l], (*a)[l], low);
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_dot_group(&sign[l], (*a)[l], high);
  }
  V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
    dot[l].lo = wasm_i32x4_sub(dot[l].lo, wasm_i32x4_shl(sign[l].lo, 1));
    dot[l].hi = wasm_i32x4_sub(dot[l].hi, wasm_i32x4_shl(sign[l].hi, 1));
  }
}

V_INLINE void dot_block(const uint32_t lanes, v_columns *dot, const v_activation_block *x,
                        const v_block_s8 *w) {
  V_UNROLL for (uint32_t l = 0; l < lanes; l += 2) {
    /* Codes of later lanes lie behind: a group is read from its lane l on. */
    dot_lanes(lanes - l < 2 ? 1 : 2, dot + l,
              (const v_activation_group *)(const void *)x->codes[0][l], w->codes);
  }
}
#else
V_INLINE void dot_block(const uint32_t lanes, v_columns *dot, const v_activation_block *x,
                        const v_block_s8 *w) {
  const v_activation_group *a = x->codes;
  const uint8_t *c = w->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++, c += GROUP_BYTES) {
    V_BASE(a);
    V_BASE(c);
    const v_columns codes = {wasm_i16x8_load8x8(c), wasm_i16x8_load8x8(c + 8)};
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_dot_group(&dot[l], (*a)[l], codes);
  }
}
#endif

V_DEFINE_TILE(v_linear_s8b32_4x8, v_block_s8, dot_block, v_add_symmetric_block)

void v_widen_scales_s8(v_block_scales *to, const v_block_s8 *panel, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++) {
    V_UNROLL for (uint32_t c = 0; c < V_PANEL; c += 4) {
      v_store(to[b].scale + c, v_f16x4_to_f32x4(panel[b].scale + c));
    }
  }
}
