/* exp, tanh, log1p and GELU on four floats.
 *
 * Polynomials are minimax fits in the relative error of the result (GELU's in the
 * absolute one); the comment at each gives its error in exact arithmetic. Rounding adds
 * about one unit in the last place.
 * Only separate multiplications and additions: the bits are the same in every engine. */
#ifndef VOLERY_EXPONENTIAL_H
#define VOLERY_EXPONENTIAL_H
#include "core/simd.h"

/* A constant in a local, which LLVM then sets before the loop: V8 rebuilds a v128.const
 * from general registers wherever it stands, which made GELU 1.7 times as slow. */
#define V_LOCAL(constant)            \
  __extension__({                    \
    v128_t local_ = constant;        \
    __asm__("" : "+r"(local_));      \
    local_;                          \
  })
#define V_F32(x) V_LOCAL(wasm_f32x4_const_splat(x))
#define V_I32(x) V_LOCAL(wasm_i32x4_const_splat(x))
V_INLINE v128_t v_add(v128_t a, v128_t b) { return wasm_f32x4_add(a, b); }
V_INLINE v128_t v_sub(v128_t a, v128_t b) { return wasm_f32x4_sub(a, b); }
V_INLINE v128_t v_mul(v128_t a, v128_t b) { return wasm_f32x4_mul(a, b); }
V_INLINE v128_t v_div(v128_t a, v128_t b) { return wasm_f32x4_div(a, b); }
/* a * b + c with both roundings. */
V_INLINE v128_t v_muladd(v128_t a, v128_t b, v128_t c) { return v_add(v_mul(a, b), c); }
/* Limits of a variable by a constant. Unlike f32x4.max and min these are one instruction
 * on x86; they let NaN in x through because of the order of their operands. */
V_INLINE v128_t v_at_least(v128_t x, v128_t low) { return wasm_f32x4_pmax(x, low); }
V_INLINE v128_t v_at_most(v128_t x, v128_t high) { return wasm_f32x4_pmin(x, high); }
V_INLINE v128_t v_select(v128_t if_true, v128_t if_false, v128_t mask) {
  return wasm_v128_bitselect(if_true, if_false, mask);
}

#define V_EXP_MAGIC 0x1.8p23f /* adding it to a float rounds to an integer, half to even */

/* exp(x) = *power * 2^n; n is returned biased by V_EXP_MAGIC's bits. |x| <= 110. */
V_INLINE v128_t v_exp_parts(v128_t x, v128_t *power) {
  v128_t shifted = v_muladd(x, V_F32(0x1.715476p0f), V_F32(V_EXP_MAGIC));
  v128_t n = v_sub(shifted, V_F32(V_EXP_MAGIC));
  /* ln 2 in two parts, the first with trailing zeros, so that n * hi is exact. */
  v128_t r = v_sub(v_sub(x, v_mul(n, V_F32(0x1.62ep-1f))), v_mul(n, V_F32(0x1.0bfbe8p-15f)));
  /* e^r = 1 + r + r^2 p(r) on |r| <= ln(2) / 2; relative error 3e-9. */
  v128_t p = V_F32(0.0013814540579915047f);
  p = v_muladd(p, r, V_F32(0.00836874544620514f));
  p = v_muladd(p, r, V_F32(0.04166838899254799f));
  p = v_muladd(p, r, V_F32(0.1666652113199234f));
  p = v_muladd(p, r, V_F32(0.4999999403953552f));
  *power = v_add(v_muladd(v_mul(r, r), p, r), V_F32(1.0f));
  return shifted;
}

/* exp(x) for x in -87 .. 88. NaN stays NaN. */
V_INLINE v128_t v_exp_in_range(v128_t x) {
  v128_t p, n = v_exp_parts(x, &p);
  return v_mul(p, wasm_i32x4_shl(wasm_i32x4_sub(n, V_I32(0x4b400000 - 127)), 23));
}

/* exp(x) for x <= 0, flushed to 0 below -87. NaN stays NaN. */
V_INLINE v128_t v_exp_negative(v128_t x) {
  v128_t small = wasm_f32x4_lt(x, V_F32(-87.0f));
  return wasm_v128_andnot(v_exp_in_range(v_at_least(x, V_F32(-87.0f))), small);
}

/* exp(x) for every x: subnormal results, overflow to infinity, NaN. */
V_INLINE v128_t v_exp(v128_t x) {
  v128_t p, n = v_exp_parts(v_at_most(v_at_least(x, V_F32(-110.0f)), V_F32(100.0f)), &p);
  n = wasm_i32x4_sub(n, V_I32(0x4b400000));
  /* 2^n can leave the range of f32 where the product does not: apply it in halves. */
  v128_t half = wasm_i32x4_shr(n, 1), bias = V_I32(127);
  v128_t low = wasm_i32x4_shl(wasm_i32x4_add(half, bias), 23);
  v128_t high = wasm_i32x4_shl(wasm_i32x4_add(wasm_i32x4_sub(n, half), bias), 23);
  return v_mul(v_mul(p, low), high);
}

V_INLINE v128_t v_sigmoid(v128_t x) {
  return v_div(V_F32(1.0f), v_add(V_F32(1.0f), v_exp(wasm_f32x4_neg(x))));
}

/* Small |x|: x + x^3 p(x^2), relative error 4e-9 on |x| <= 0.625; otherwise
 * 1 - 2 / (exp(2 |x|) + 1) with the sign of x. */
V_INLINE v128_t v_tanh(v128_t x) {
  v128_t sign = wasm_v128_and(x, V_F32(-0.0f));
  v128_t a = wasm_f32x4_abs(x), x2 = v_mul(x, x);
  v128_t p = V_F32(-0.005704985000193119f);
  p = v_muladd(p, x2, V_F32(0.02063908614218235f));
  p = v_muladd(p, x2, V_F32(-0.05373971536755562f));
  p = v_muladd(p, x2, V_F32(0.13331441581249237f));
  p = v_muladd(p, x2, V_F32(-0.3333328068256378f));
  v128_t near = v_muladd(v_mul(x, x2), p, x);
  v128_t e = v_exp(v_add(a, a));
  v128_t far = v_sub(V_F32(1.0f), v_div(V_F32(2.0f), v_add(e, V_F32(1.0f))));
  return v_select(near, wasm_v128_or(far, sign), wasm_f32x4_lt(a, V_F32(0.625f)));
}

/* log(1 + z) for z in 0 .. 1, as 2 atanh(z / (2 + z)), whose series is used. */
V_INLINE v128_t v_log1p_unit(v128_t z) {
  v128_t s = v_div(z, v_add(z, V_F32(2.0f))), s2 = v_mul(s, s);
  v128_t p = V_F32(2.0f / 15);
  p = v_muladd(p, s2, V_F32(2.0f / 13));
  p = v_muladd(p, s2, V_F32(2.0f / 11));
  p = v_muladd(p, s2, V_F32(2.0f / 9));
  p = v_muladd(p, s2, V_F32(2.0f / 7));
  p = v_muladd(p, s2, V_F32(2.0f / 5));
  p = v_muladd(p, s2, V_F32(2.0f / 3));
  p = v_muladd(p, s2, V_F32(2.0f));
  return v_mul(s, p);
}

/* x Phi(x). Phi(x) is Q(-x) left of zero and 1 - Q(x) right of it, where Q is the normal
 * distribution's upper tail, so x Phi(x) = max(x, 0) - |x| Q(|x|). The eighth root of Q is
 * so gentle that a polynomial does without a division and an exponential. Fitted to the
 * absolute error of x Phi(x), which is 3e-8; from 6 on |x| Q is below that, and counts
 * as 0. */
V_INLINE v128_t v_gelu(v128_t x) {
  v128_t magnitude = wasm_f32x4_abs(x), a = v_at_most(magnitude, V_F32(6.0f));
  v128_t q = V_F32(-2.95881307010859e-07f);
  q = v_muladd(q, a, V_F32(7.479546184185892e-06f));
  q = v_muladd(q, a, V_F32(-6.025760740158148e-05f));
  q = v_muladd(q, a, V_F32(3.429497519391589e-05f));
  q = v_muladd(q, a, V_F32(0.0015043624443933368f));
  q = v_muladd(q, a, V_F32(-0.0006719556986354291f));
  q = v_muladd(q, a, V_F32(-0.03192807734012604f));
  q = v_muladd(q, a, V_F32(-0.09145741164684296f));
  q = v_muladd(q, a, V_F32(0.9170039892196655f));
  q = v_mul(q, q);
  q = v_mul(q, q);
  q = v_mul(q, q);
  v128_t far = wasm_f32x4_ge(magnitude, V_F32(6.0f));
  return v_sub(v_at_least(x, V_F32(0.0f)), wasm_v128_andnot(v_mul(a, q), far));
}

#endif
