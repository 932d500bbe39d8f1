#include "kernels/linear/quantize.h"

#include "math/exponential.h"

static void quantize_block(const float *x, v_activation_code *codes, float *scale, float *sum) {
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
    v_store(codes + 16 * i, a);
    total = wasm_i32x4_add(
        total, wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16(a)));
  }
#else
  const v128_t lowest = wasm_i16x8_const_splat(-127), highest = wasm_i16x8_const_splat(127);
  v128_t total = wasm_i32x4_const_splat(0);
  V_UNROLL for (uint32_t i = 0; i < 4; i++) {
    v128_t a = wasm_i16x8_min(wasm_i16x8_max(n[i], lowest), highest);
    v_store(codes + 8 * i, a);
    total = wasm_i32x4_add(total, wasm_i32x4_extadd_pairwise_i16x8(a));
  }
#endif
  *scale = sa;
  *sum = sa * (float)v_sum_lanes_i32(total);
}

void v_quantize_row(const v_quantized *q, uint32_t row, const float *x, uint32_t k) {
  v_activation_code *codes = q->codes + (size_t)row * q->blocks * V_BLOCK;
  float *scale = q->scale + (size_t)row * q->blocks, *sum = q->sum + (size_t)row * q->blocks;
  const uint32_t whole = k / V_BLOCK;
  for (uint32_t b = 0; b < whole; b++) {
    quantize_block(x + b * V_BLOCK, codes + b * V_BLOCK, scale + b, sum + b);
  }
  if (whole < q->blocks) {
    float tail[V_BLOCK] = {0};
    v_copy(tail, x + whole * V_BLOCK, (k - whole * V_BLOCK) * sizeof(float));
    quantize_block(tail, codes + whole * V_BLOCK, scale + whole, sum + whole);
  }
}
