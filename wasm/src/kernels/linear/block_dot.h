/* The integer dot products of one block, and the arithmetic that every block format
 * shares. Included by the block formats' kernels only. */
#ifndef VOLERY_BLOCK_DOT_H
#define VOLERY_BLOCK_DOT_H
#include "kernels/linear/tiles.h"
#include "math/exponential.h"

typedef struct {
  v128_t lo, hi; /* columns 0..3 and 4..7 */
} v_columns;

/* acc += codes * weights over one V_GROUP of k. The first operand of the relaxed dot is the
 * signed one: engines agree while the second is in 0..127 (signed_dot.h has the rest). */
#ifdef __wasm_relaxed_simd__
V_INLINE void v_dot_group(v_columns *acc, const v_activation_code a[4 * V_GROUP], v_columns w) {
  const v128_t x = v_load(a);
  acc->lo = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w.lo, acc->lo);
  acc->hi = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w.hi, acc->hi);
}
#else
V_INLINE void v_dot_group(v_columns *acc, const v_activation_code a[4 * V_GROUP], v_columns w) {
  const v128_t x = v_load(a);
  acc->lo = wasm_i32x4_add(acc->lo, wasm_i32x4_dot_i16x8(x, w.lo));
  acc->hi = wasm_i32x4_add(acc->hi, wasm_i32x4_dot_i16x8(x, w.hi));
}
#endif

V_INLINE v_columns v_zero_columns(void) {
  return (v_columns){wasm_i32x4_const_splat(0), wasm_i32x4_const_splat(0)};
}

#define V_GROUP_BYTES (V_PANEL * V_GROUP)

/* The sums of pairs of products, in lanes of 16 bits, and acc += those. Weights of 0..15 times
 * codes of -128..127 leave room for all eight groups of a block: 16 * 15 * 128 < 2^15. Where
 * the relaxed dot product is three instructions (V_SIGNED_SPLIT), this is two of them. */
#ifdef __wasm_relaxed_simd__
V_INLINE v_columns v_pairs_of(const v_activation_code a[4 * V_GROUP], v_columns w) {
  const v128_t x = v_load(a);
  return (v_columns){wasm_i16x8_relaxed_dot_i8x16_i7x16(x, w.lo),
                     wasm_i16x8_relaxed_dot_i8x16_i7x16(x, w.hi)};
}
V_INLINE void v_pairs_group(v_columns *acc, const v_activation_code a[4 * V_GROUP], v_columns w) {
  const v_columns pairs = v_pairs_of(a, w);
  *acc = (v_columns){wasm_i16x8_add(acc->lo, pairs.lo), wasm_i16x8_add(acc->hi, pairs.hi)};
}
V_INLINE v_columns v_pairs_to_dot(v_columns acc) {
  return (v_columns){wasm_i32x4_extadd_pairwise_i16x8(acc.lo),
                     wasm_i32x4_extadd_pairwise_i16x8(acc.hi)};
}
#else
V_INLINE v_columns v_pairs_of(const v_activation_code a[4 * V_GROUP], v_columns w) {
  v_columns acc = v_zero_columns();
  v_dot_group(&acc, a, w);
  return acc;
}
#define v_pairs_group v_dot_group
V_INLINE v_columns v_pairs_to_dot(v_columns acc) { return acc; }
#endif

/* One group of 8-bit codes. */
V_INLINE v_columns v_load_group(const uint8_t *p) {
#ifdef __wasm_relaxed_simd__
  return (v_columns){v_load(p), v_load(p + 16)};
#else
  return (v_columns){wasm_i16x8_load8x8(p), wasm_i16x8_load8x8(p + 8)};
#endif
}

V_INLINE v_columns v_splat_columns(const int32_t *p) {
  const v128_t x = wasm_v128_load32_splat(p);
  return (v_columns){x, x};
}

/* a + b * 2^shift */
V_INLINE v_columns v_add_shifted(v_columns a, v_columns b, const uint32_t shift) {
  return (v_columns){wasm_i32x4_add(a.lo, wasm_i32x4_shl(b.lo, shift)),
                     wasm_i32x4_add(a.hi, wasm_i32x4_shl(b.hi, shift))};
}
/* The dot product of row `row` from those of its lanes: exact in 32 bits, since 32 codes of
 * at most 32639 times weights of at most 255 stay below 2^28. */
V_INLINE v_columns v_row_dot(const v_columns *dot, uint32_t row, const bool wide) {
  if (!wide || V_WIDE_LANES == 1) return dot[row];
  return v_add_shifted(dot[2 * row + 1], dot[2 * row], 8);
}
V_INLINE v_columns v_dot_to_floats(v_columns dot) {
  return (v_columns){wasm_f32x4_convert_i32x4(dot.lo), wasm_f32x4_convert_i32x4(dot.hi)};
}

/* Where arithmetic is the limit, a block's dot product of 8-bit codes starts at the bits of
 * 1.5 * 2^23. It stays below 2^22 in magnitude, so that its bits are then those of
 * 1.5 * 2^23 + dot, and an exact subtraction makes it a float: on x86 an addition has more
 * ports than a conversion, which would compete with the dot products. */
V_INLINE v_columns v_start_short_dot(void) {
  return (v_columns){V_F32(V_EXP_MAGIC), V_F32(V_EXP_MAGIC)};
}
V_INLINE v_columns v_short_dot_to_floats(v_columns dot) {
  const v128_t start = V_F32(V_EXP_MAGIC);
  return (v_columns){v_sub(dot.lo, start), v_sub(dot.hi, start)};
}

/* sum = sum + dot * (scale * sa), then + min * (sa * sum of codes): every
 * operation rounds (docs/design.md, 6.1). sa and codes: a row's, in all lanes. */
V_INLINE void v_add_scaled(v_columns *sum, v_columns dot, v_columns scale, v128_t sa) {
  sum->lo = v_muladd(dot.lo, v_mul(scale.lo, sa), sum->lo);
  sum->hi = v_muladd(dot.hi, v_mul(scale.hi, sa), sum->hi);
}
V_INLINE void v_add_min(v_columns *sum, v_columns min, v128_t codes) {
  sum->lo = v_muladd(min.lo, codes, sum->lo);
  sum->hi = v_muladd(min.hi, codes, sum->hi);
}

V_INLINE v_columns v_load_columns(const float *p) { return (v_columns){v_load(p), v_load(p + 4)}; }
V_INLINE void v_store_columns(float *out, v_columns c) {
  v_store(out, c.lo);
  v_store(out + 4, c.hi);
}

/* v_f16x4_to_f32x4 with its constants in locals. */
V_INLINE v128_t v_widen_half(const uint16_t *p) {
  const v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
  return v_mul(wasm_v128_and(bits, V_I32((int32_t)0x8fffe000)), V_F32(0x1p112f));
}
V_INLINE v_columns v_widen_columns(const uint16_t *p) {
  return (v_columns){v_widen_half(p), v_widen_half(p + 4)};
}

/* + bias, + residual, store, for `rows` rows of sums. */
V_INLINE void v_finish_row(v_columns sum, const v_tile_out *to, uint32_t row) {
  /* Adding -0 changes nothing, not even -0. */
  const v128_t b0 = to->bias ? v_load(to->bias) : V_F32(-0.0f);
  const v128_t b1 = to->bias ? v_load(to->bias + 4) : V_F32(-0.0f);
  v_columns c = {v_add(sum.lo, b0), v_add(sum.hi, b1)};
  if (to->residual) {
    const float *residual = to->residual + row * to->stride;
    c = (v_columns){v_add(c.lo, v_load(residual)), v_add(c.hi, v_load(residual + 4))};
  }
  v_store_columns(to->out + row * to->stride, c);
}

#endif
