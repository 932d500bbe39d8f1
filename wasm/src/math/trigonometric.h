/* sin and cos of position * frequency. */
#ifndef VOLERY_TRIGONOMETRIC_H
#define VOLERY_TRIGONOMETRIC_H
#include "math/exponential.h"

/* Two angles minus the nearest multiple of pi/2; *quadrant gets that multiple's low
 * bits in lanes 0 and 2. pi/2 is cut in two (Cody and Waite): n has fewer than 31 bits
 * and the first part 33 (its last 20 bits are zero), which leaves about 1e-10 for the
 * largest angles. */
V_INLINE v128_t v_reduce_f64x2(v128_t angle, v128_t *quadrant) {
  const v128_t magic = wasm_f64x2_const_splat(0x1.8p52);
  v128_t shifted =
      wasm_f64x2_add(wasm_f64x2_mul(angle, wasm_f64x2_const_splat(0x1.45f306dc9c883p-1)), magic);
  v128_t n = wasm_f64x2_sub(shifted, magic);
  *quadrant = shifted; /* the integer sits in the low bits of the sum */
  v128_t r = wasm_f64x2_sub(angle, wasm_f64x2_mul(n, wasm_f64x2_const_splat(0x1.921fb544p+0)));
  return wasm_f64x2_sub(r, wasm_f64x2_mul(n, wasm_f64x2_const_splat(0x1.0b4611a626331p-34)));
}

/* sin and cos of the four angles position * frequency[0..3]. The product and the
 * reduction are done in f64: f32 would lose the phase of late positions. */
V_INLINE void v_sincos(double position, v128_t frequency, v128_t *sine, v128_t *cosine) {
  v128_t q0, q1, p = wasm_f64x2_splat(position);
  v128_t high = wasm_i32x4_shuffle(frequency, frequency, 2, 3, 0, 1);
  v128_t r0 = v_reduce_f64x2(wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(frequency), p), &q0);
  v128_t r1 = v_reduce_f64x2(wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(high), p), &q1);
  v128_t r = wasm_i32x4_shuffle(wasm_f32x4_demote_f64x2_zero(r0), wasm_f32x4_demote_f64x2_zero(r1),
                                0, 1, 4, 5);
  v128_t quadrant = wasm_i32x4_shuffle(q0, q1, 0, 2, 4, 6);
  v128_t r2 = v_mul(r, r);
  /* |r| <= pi/4: relative errors 4e-9 and 2e-10. */
  v128_t s = V_F32(-0.0001951463200384751f);
  s = v_muladd(s, r2, V_F32(0.008332155644893646f));
  s = v_muladd(s, r2, V_F32(-0.16666655242443085f));
  s = v_muladd(v_mul(r, r2), s, r);
  v128_t c = V_F32(2.443241282890085e-05f);
  c = v_muladd(c, r2, V_F32(-0.0013887309469282627f));
  c = v_muladd(c, r2, V_F32(0.04166664555668831f));
  c = v_muladd(v_mul(r2, r2), c, v_sub(V_F32(1.0f), v_mul(r2, V_F32(0.5f))));
  v128_t odd = wasm_i32x4_ne(wasm_v128_and(quadrant, V_I32(1)), V_I32(0));
  v128_t sin_sign = wasm_i32x4_shl(wasm_v128_and(quadrant, V_I32(2)), 30);
  v128_t next = wasm_i32x4_add(quadrant, V_I32(1));
  v128_t cos_sign = wasm_i32x4_shl(wasm_v128_and(next, V_I32(2)), 30);
  *sine = wasm_v128_xor(v_select(c, s, odd), sin_sign);
  *cosine = wasm_v128_xor(v_select(s, c, odd), cos_sign);
}

#endif
