/* SIMD helpers shared by the kernels. Rows have any width, so every loop over columns
 * ends with a partial vector that is loaded and stored lane by lane: the lanes of a
 * partial vector go through the same instructions as those of a full one, and get the
 * same bits. */
#ifndef VOLERY_SIMD_H
#define VOLERY_SIMD_H
#include <wasm_simd128.h>

#include "core/base.h"

V_INLINE v128_t v_load(const void *p) { return wasm_v128_load(p); }
V_INLINE void v_store(void *p, v128_t x) { wasm_v128_store(p, x); }
V_INLINE v128_t v_splat(float x) { return wasm_f32x4_splat(x); }

/* The first n (1..3) lanes; the others are zero. */
V_INLINE v128_t v_load_part(const float *p, uint32_t n) {
  if (n == 1) return wasm_v128_load32_zero(p);
  v128_t x = wasm_v128_load64_zero(p);
  return n == 2 ? x : wasm_v128_load32_lane(p + 2, x, 2);
}
V_INLINE void v_store_part(float *p, v128_t x, uint32_t n) {
  if (n == 1) {
    wasm_v128_store32_lane(p, x, 0);
    return;
  }
  wasm_v128_store64_lane(p, x, 0);
  if (n == 3) wasm_v128_store32_lane(p + 2, x, 2);
}

/* for (i = 0, 4, 8, .. ) { body } over n floats, where `body` uses v_at and v_put with
 * the variable `lanes`: 4, or what is left in the last round. The outer loop is unrolled,
 * so the whole vectors get a loop of their own without a test of `lanes`. */
#define V_FOR_COLUMNS(i, lanes, n)                                                       \
  V_UNROLL for (uint32_t part_##i = 0; part_##i < 2; part_##i++)                         \
    for (uint32_t i = part_##i ? (n) & ~3u : 0, lanes = part_##i ? (n) & 3u : 4;         \
         i < (part_##i ? (n) : (n) & ~3u); i += 4)
V_INLINE v128_t v_at(const float *p, uint32_t lanes) {
  return lanes == 4 ? v_load(p) : v_load_part(p, lanes);
}
V_INLINE void v_put(float *p, v128_t x, uint32_t lanes) {
  if (lanes == 4) {
    v_store(p, x);
  } else {
    v_store_part(p, x, lanes);
  }
}

/* memory.copy is a call into the engine, which short rows cannot afford. */
V_INLINE void v_copy_floats(float *to, const float *from, uint32_t n) {
  V_FOR_COLUMNS(i, lanes, n) { v_put(to + i, v_at(from + i, lanes), lanes); }
}
V_INLINE void v_zero_floats(float *to, uint32_t n) {
  V_FOR_COLUMNS(i, lanes, n) { v_put(to + i, wasm_i32x4_const_splat(0), lanes); }
}

/* (a + c) + (b + d): one fixed order for every horizontal sum. */
V_INLINE float v_sum_lanes(v128_t x) {
  x = wasm_f32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(x, 0) + wasm_f32x4_extract_lane(x, 1);
}
V_INLINE int32_t v_sum_lanes_i32(v128_t x) {
  x = wasm_i32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  return wasm_i32x4_extract_lane(x, 0) + wasm_i32x4_extract_lane(x, 1);
}

/* Four f16 values to f32, exactly: shift the bits into place and let a multiplication
 * by 2^112 correct the exponent, which subnormals survive. f16 infinities and NaN are
 * not special: weights are finite, the exporter saw to it. */
V_INLINE v128_t v_f16x4_to_f32x4(const void *p) {
  v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
  bits = wasm_v128_and(bits, wasm_i32x4_const_splat((int32_t)0x8fffe000));
  return wasm_f32x4_mul(bits, wasm_f32x4_const_splat(0x1p112f));
}
V_INLINE float v_f16_to_f32(const void *p) {
  int16_t half;
  __builtin_memcpy(&half, p, sizeof half);
  uint32_t bits = ((uint32_t)(int32_t)half << 13) & 0x8fffe000u;
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x * 0x1p112f;
}

#endif
