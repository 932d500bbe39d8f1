#include "kernels/linear/quantize.h"

#include "math/exponential.h"

#define MOST_NARROW 127
#define MOST_WIDE 32639 /* 127 * 257: the high byte stays in -127 .. 127 */

/* Spreads 16 bytes of codes over four groups of one lane. */
V_INLINE void store_groups(v_activation_block *block, uint32_t group, uint32_t lane, v128_t codes) {
  v_store(block->codes[group][lane], wasm_i32x4_shuffle(codes, codes, 0, 0, 0, 0));
  v_store(block->codes[group + 1][lane], wasm_i32x4_shuffle(codes, codes, 1, 1, 1, 1));
  v_store(block->codes[group + 2][lane], wasm_i32x4_shuffle(codes, codes, 2, 2, 2, 2));
  v_store(block->codes[group + 3][lane], wasm_i32x4_shuffle(codes, codes, 3, 3, 3, 3));
}

/* 32 codes as four vectors of i16. */
#ifdef __wasm_relaxed_simd__
V_INLINE void store_codes(v_activation_block *block, uint32_t row, const v128_t n[4], bool wide) {
  V_UNROLL for (uint32_t i = 0; i < 2; i++) {
    const v128_t a = n[2 * i], b = n[2 * i + 1];
    if (wide) {
      const v128_t half = wasm_i16x8_const_splat(128);
      const v128_t c = wasm_i16x8_shr(wasm_i16x8_add(a, half), 8);
      const v128_t d = wasm_i16x8_shr(wasm_i16x8_add(b, half), 8);
      const v128_t e = wasm_i16x8_sub(a, wasm_i16x8_shl(c, 8));
      const v128_t f = wasm_i16x8_sub(b, wasm_i16x8_shl(d, 8));
      store_groups(block, 4 * i, 2 * row, wasm_i8x16_narrow_i16x8(c, d));
      store_groups(block, 4 * i, 2 * row + 1, wasm_i8x16_narrow_i16x8(e, f));
    } else {
      store_groups(block, 4 * i, row, wasm_i8x16_narrow_i16x8(a, b));
    }
  }
}
#else
V_INLINE void store_codes(v_activation_block *block, uint32_t row, const v128_t n[4], bool wide) {
  (void)wide;
  V_UNROLL for (uint32_t i = 0; i < 4; i++) store_groups(block, 4 * i, row, n[i]);
}
#endif

V_INLINE void quantize_block(const float *x, v_activation_block *block, uint32_t row,
                             const bool wide, v_quantization how) {
  const int16_t limit = wide ? MOST_WIDE : MOST_NARROW;
  v128_t v[8];
  v128_t most = wasm_i32x4_const_splat(0);
  const v128_t magnitude = wasm_i32x4_const_splat(0x7fffffff);
  V_UNROLL for (uint32_t i = 0; i < 8; i++) {
    v[i] = v_load(x + 4 * i);
    /* Floats without a sign order like integers, and NaN lies above infinity: a block
     * with NaN gets a NaN scale, so NaN reaches the output. */
    most = wasm_i32x4_max(most, wasm_v128_and(v[i], magnitude));
  }
  most = wasm_i32x4_max(most, wasm_i32x4_shuffle(most, most, 2, 3, 0, 1));
  most = wasm_i32x4_max(most, wasm_i32x4_shuffle(most, most, 1, 0, 3, 2));
  const float sa = wasm_f32x4_extract_lane(most, 0) / (float)limit;
  /* Blocks so small that 1 / sa overflows count as zero. */
  const v128_t inverse = v_splat(sa >= 0x1p-126f ? 1.0f / sa : 0.0f);
  const v128_t lowest = wasm_i16x8_splat((int16_t)-limit), highest = wasm_i16x8_splat(limit);
  v128_t n[4];
  v128_t total = wasm_i32x4_const_splat(0);
  V_UNROLL for (uint32_t i = 0; i < 4; i++) {
    /* Adding 1.5 * 2^23 rounds half to even and leaves the integer in the low bits. */
    const v128_t magic = V_F32(V_EXP_MAGIC), bits = wasm_i32x4_const_splat(0x4b400000);
    v128_t a = wasm_i32x4_sub(v_muladd(v[2 * i], inverse, magic), bits);
    v128_t b = wasm_i32x4_sub(v_muladd(v[2 * i + 1], inverse, magic), bits);
    n[i] = wasm_i16x8_min(wasm_i16x8_max(wasm_i16x8_narrow_i32x4(a, b), lowest), highest);
    total = wasm_i32x4_add(total, wasm_i32x4_extadd_pairwise_i16x8(n[i]));
  }
  store_codes(block, row, n, wide);
  block->scale[row] = sa;
  const int32_t sum = v_sum_lanes_i32(total);
  if (how.has_min) {
    block->sum[row] = sa * (float)sum;
  } else {
    block->start[row] = -how.excess * sum;
  }
}

V_INLINE void quantize_row(v_activation_block *tile, size_t stride, uint32_t row, const float *x,
                           uint32_t k, const bool wide, v_quantization how) {
  const uint32_t whole = k / V_BLOCK, rest = k % V_BLOCK;
  for (uint32_t b = 0; b < whole; b++, x += V_BLOCK, tile += stride) {
    quantize_block(x, tile, row, wide, how);
  }
  if (rest) {
    float tail[V_BLOCK] = {0};
    v_copy(tail, x, rest * sizeof(float));
    quantize_block(tail, tile, row, wide, how);
  }
}

void v_quantize_row(v_activation_block *tile, size_t stride, uint32_t row, const float *x,
                    uint32_t k, v_quantization how) {
  if (how.wide) {
    quantize_row(tile, stride, row, x, k, true, how);
  } else {
    quantize_row(tile, stride, row, x, k, false, how);
  }
}

void v_clear_row(v_activation_block *tile, size_t stride, uint32_t row, uint32_t k) {
  for (uint32_t b = 0; b < v_ceil_div(k, V_BLOCK); b++, tile += stride) {
    tile->scale[row] = tile->sum[row] = 0; /* so is start */
  }
}
