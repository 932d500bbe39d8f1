#include "kernels/linear/quantize.h"

#include "math/exponential.h"

/* Spreads 16 bytes of codes over four groups of one row. */
V_INLINE void store_groups(v_activation_block *block, uint32_t group, uint32_t row, v128_t codes) {
  wasm_v128_store32_lane(block->codes[group][row], codes, 0);
  wasm_v128_store32_lane(block->codes[group + 1][row], codes, 1);
  wasm_v128_store32_lane(block->codes[group + 2][row], codes, 2);
  wasm_v128_store32_lane(block->codes[group + 3][row], codes, 3);
}

static void quantize_block(const float *x, v_activation_block *block, uint32_t row) {
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
  const float sa = wasm_f32x4_extract_lane(most, 0) / 127.0f;
  /* Blocks so small that 1 / sa overflows count as zero. */
  const v128_t inverse = v_splat(sa >= 0x1p-126f ? 1.0f / sa : 0.0f);
  v128_t n[4];
  V_UNROLL for (uint32_t i = 0; i < 4; i++) {
    /* Adding 1.5 * 2^23 rounds half to even and leaves the integer in the low bits. */
    const v128_t magic = V_F32(V_EXP_MAGIC), bits = wasm_i32x4_const_splat(0x4b400000);
    v128_t a = wasm_i32x4_sub(v_muladd(v[2 * i], inverse, magic), bits);
    v128_t b = wasm_i32x4_sub(v_muladd(v[2 * i + 1], inverse, magic), bits);
    n[i] = wasm_i16x8_narrow_i32x4(a, b);
  }
#ifdef __wasm_relaxed_simd__
  const v128_t lowest = wasm_i8x16_const_splat(-127);
  v128_t total = wasm_i32x4_const_splat(0);
  V_UNROLL for (uint32_t i = 0; i < 2; i++) {
    v128_t a = wasm_i8x16_max(wasm_i8x16_narrow_i16x8(n[2 * i], n[2 * i + 1]), lowest);
    store_groups(block, 4 * i, row, a);
    total = wasm_i32x4_add(total,
                           wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16(a)));
  }
#else
  const v128_t lowest = wasm_i16x8_const_splat(-127), highest = wasm_i16x8_const_splat(127);
  v128_t total = wasm_i32x4_const_splat(0);
  V_UNROLL for (uint32_t i = 0; i < 4; i++) {
    v128_t a = wasm_i16x8_min(wasm_i16x8_max(n[i], lowest), highest);
    store_groups(block, 4 * i, row, a);
    total = wasm_i32x4_add(total, wasm_i32x4_extadd_pairwise_i16x8(a));
  }
#endif
  block->scale[row] = sa;
  block->sum[row] = sa * (float)v_sum_lanes_i32(total);
}

void v_quantize_row(v_activation_block *tile, uint32_t row, const float *x, uint32_t k) {
  const uint32_t whole = k / V_BLOCK, rest = k % V_BLOCK;
  for (uint32_t b = 0; b < whole; b++) quantize_block(x + b * V_BLOCK, tile + b, row);
  if (rest) {
    float tail[V_BLOCK] = {0};
    v_copy(tail, x + whole * V_BLOCK, rest * sizeof(float));
    quantize_block(tail, tile + whole, row);
  }
}
