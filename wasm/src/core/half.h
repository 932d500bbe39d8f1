/* f16 with all its values: what the cache stores may be infinite or NaN, unlike weights. */
#ifndef VOLERY_HALF_H
#define VOLERY_HALF_H
#include "core/simd.h"

/* Four f32 to f16 in the low halves of the lanes: nearest, ties to even; from 65520 on
 * infinity; every NaN becomes a quiet one. */
V_INLINE v128_t v_f32x4_to_f16(v128_t x) {
  const v128_t sign = wasm_v128_and(x, wasm_i32x4_const_splat(INT32_MIN));
  const v128_t a = wasm_v128_xor(x, sign);
  /* Adding just less than half a unit, and the bit that ties are decided by. */
  const v128_t odd = wasm_v128_and(wasm_u32x4_shr(a, 13), wasm_i32x4_const_splat(1));
  v128_t h = wasm_i32x4_add(wasm_i32x4_add(a, odd), wasm_i32x4_const_splat(0xfff - 0x38000000));
  h = wasm_u32x4_shr(h, 13);
  /* Below 2^-14 the unit is 2^-24, that of 0.5 in f32: an addition rounds. */
  const v128_t half = wasm_f32x4_const_splat(0.5f);
  const v128_t subnormal = wasm_i32x4_sub(wasm_f32x4_add(a, half), half);
  h = wasm_v128_bitselect(subnormal, h, wasm_i32x4_lt(a, wasm_i32x4_const_splat(0x38800000)));
  const v128_t fits = wasm_i32x4_lt(a, wasm_i32x4_const_splat(0x477ff000));
  h = wasm_v128_bitselect(h, wasm_i32x4_const_splat(0x7c00), fits);
  const v128_t nan = wasm_i32x4_gt(a, wasm_i32x4_const_splat(0x7f800000));
  h = wasm_v128_or(h, wasm_v128_and(nan, wasm_i32x4_const_splat(0x7e00)));
  return wasm_v128_or(h, wasm_u32x4_shr(sign, 16));
}

/* Four f16 to f32, exactly. */
V_INLINE v128_t v_any_f16x4_to_f32x4(const void *p) {
  v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
  bits = wasm_v128_and(bits, wasm_i32x4_const_splat((int32_t)0x8fffe000));
  const v128_t exponent = wasm_i32x4_const_splat(0x0f800000);
  const v128_t special = wasm_i32x4_eq(wasm_v128_and(bits, exponent), exponent);
  const v128_t finite = wasm_f32x4_mul(bits, wasm_f32x4_const_splat(0x1p112f));
  return wasm_v128_or(finite, wasm_v128_and(special, wasm_i32x4_const_splat(0x7f800000)));
}

#endif
