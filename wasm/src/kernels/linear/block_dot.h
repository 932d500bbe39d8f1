/* The integer dot products of one block, and the arithmetic that every block format
 * shares. Included by the block formats' kernels only. */
#ifndef VOLERY_BLOCK_DOT_H
#define VOLERY_BLOCK_DOT_H
#include "kernels/linear/tiles.h"
#include "math/exponential.h"

typedef struct {
  v128_t lo, hi; /* columns 0..3 and 4..7 */
} v_columns;

/* acc += codes * weights over one V_GROUP of k. The first operand of the relaxed dot is
 * the signed one: engines agree while the second is in 0..127. */
#ifdef __wasm_relaxed_simd__
V_INLINE void v_dot_group(v_columns *acc, const v_activation_code a[V_GROUP], v_columns w) {
  const v128_t x = wasm_v128_load32_splat(a);
  acc->lo = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w.lo, acc->lo);
  acc->hi = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, w.hi, acc->hi);
}
#else
V_INLINE void v_dot_group(v_columns *acc, const v_activation_code a[V_GROUP], v_columns w) {
  const v128_t x = wasm_v128_load32_splat(a);
  acc->lo = wasm_i32x4_add(acc->lo, wasm_i32x4_dot_i16x8(x, w.lo));
  acc->hi = wasm_i32x4_add(acc->hi, wasm_i32x4_dot_i16x8(x, w.hi));
}
#endif

V_INLINE v_columns v_zero_columns(void) {
  return (v_columns){wasm_i32x4_const_splat(0), wasm_i32x4_const_splat(0)};
}

/* A block's dot product starts at the bits of 1.5 * 2^23. It stays below 2^22 in magnitude,
 * so that its bits are then those of 1.5 * 2^23 + dot, and an exact subtraction makes it a
 * float: on x86 an addition has more ports than a conversion, which would compete with the
 * dot products. */
V_INLINE v_columns v_start_dot(void) { return (v_columns){V_F32(V_EXP_MAGIC), V_F32(V_EXP_MAGIC)}; }
V_INLINE v128_t v_dot_to_float(v128_t dot) { return v_sub(dot, V_F32(V_EXP_MAGIC)); }

/* sum = sum + float(dot) * (scale * sa), then + min * (sa * sum of codes): every
 * operation rounds (docs/design.md, 6.1). */
V_INLINE void v_add_block(v_columns *sum, v_columns dot, const v_block_scales *w,
                          const v_activation_block *x, uint32_t row) {
  const v128_t sa = wasm_v128_load32_splat(x->scale + row);
  const v128_t codes = wasm_v128_load32_splat(x->sum + row);
  sum->lo = v_muladd(v_dot_to_float(dot.lo), v_mul(v_load(w->scale), sa), sum->lo);
  sum->hi = v_muladd(v_dot_to_float(dot.hi), v_mul(v_load(w->scale + 4), sa), sum->hi);
  sum->lo = v_muladd(v_load(w->min), codes, sum->lo);
  sum->hi = v_muladd(v_load(w->min + 4), codes, sum->hi);
}

V_INLINE void v_widen_scales(v_block_scales *to, const uint16_t *scale, const uint16_t *min) {
  V_UNROLL for (uint32_t c = 0; c < V_PANEL; c += 4) {
    v_store(to->scale + c, v_f16x4_to_f32x4(scale + c));
    v_store(to->min + c, v_f16x4_to_f32x4(min + c));
  }
}

V_INLINE void v_store_columns(float *out, v_columns c) {
  v_store(out, c.lo);
  v_store(out + 4, c.hi);
}

/* + bias, + residual, store. */
V_INLINE void v_finish_rows(const uint32_t rows, const v_columns *sum, const v_tile_out *to) {
  /* Adding -0 changes nothing, not even -0. */
  const v128_t b0 = to->bias ? v_load(to->bias) : V_F32(-0.0f);
  const v128_t b1 = to->bias ? v_load(to->bias + 4) : V_F32(-0.0f);
  const float *residual = to->residual;
  float *out = to->out;
  V_UNROLL for (uint32_t r = 0; r < rows; r++, out += to->stride) {
    v_columns c = {v_add(sum[r].lo, b0), v_add(sum[r].hi, b1)};
    if (residual) {
      c = (v_columns){v_add(c.lo, v_load(residual)), v_add(c.hi, v_load(residual + 4))};
      residual += to->stride;
    }
    v_store_columns(out, c);
  }
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
