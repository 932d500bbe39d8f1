/* The integer dot products of one block, and the arithmetic that every block format
 * shares. Included by the block formats' kernels only. */
#ifndef VOLERY_BLOCK_DOT_H
#define VOLERY_BLOCK_DOT_H
#include "kernels/linear/tiles.h"
#include "math/exponential.h"

typedef struct {
  v128_t lo, hi; /* columns 0..3 and 4..7 */
} v_columns;

/* acc += codes * weights over one V_GROUP of k. `a` points at the row's codes of the
 * group. The first operand of the relaxed dot is the signed one: engines agree while
 * the second is in 0..127. */
#ifdef __wasm_relaxed_simd__
V_INLINE void v_dot_group(v_columns *acc, const v_activation_code *a, v_columns w) {
  const v128_t x = wasm_v128_load32_splat(a);
  acc->lo = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w.lo, acc->lo);
  acc->hi = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w.hi, acc->hi);
}
#else
V_INLINE void v_dot_group(v_columns *acc, const v_activation_code *a, v_columns w) {
  const v128_t x = wasm_v128_load32_splat(a);
  acc->lo = wasm_i32x4_add(acc->lo, wasm_i32x4_dot_i16x8(x, w.lo));
  acc->hi = wasm_i32x4_add(acc->hi, wasm_i32x4_dot_i16x8(x, w.hi));
}
#endif

/* sum = sum + float(dot) * (scale * sa), then + min * (sa * sum of codes): every
 * operation rounds (docs/design.md, 6.1). */
V_INLINE void v_add_block(v_columns *sum, v_columns dot, v_columns scale, v_columns min,
                          const float *sa, const float *code_sum) {
  const v128_t s = wasm_v128_load32_splat(sa), t = wasm_v128_load32_splat(code_sum);
  sum->lo = v_muladd(wasm_f32x4_convert_i32x4(dot.lo), v_mul(scale.lo, s), sum->lo);
  sum->hi = v_muladd(wasm_f32x4_convert_i32x4(dot.hi), v_mul(scale.hi, s), sum->hi);
  sum->lo = v_muladd(min.lo, t, sum->lo);
  sum->hi = v_muladd(min.hi, t, sum->hi);
}

/* Instantiates `kernel` for 1 to 4 rows and picks one. */
#define V_DISPATCH_ROWS(kernel, rows, ...)        \
  switch (rows) {                                 \
    case 1: kernel(1, __VA_ARGS__); break;        \
    case 2: kernel(2, __VA_ARGS__); break;        \
    case 3: kernel(3, __VA_ARGS__); break;        \
    default: kernel(4, __VA_ARGS__); break;       \
  }

#endif
