/* Activations of the block formats: signed 8 bit, one scale per row and block of 32. */
#ifndef VOLERY_QUANTIZE_H
#define VOLERY_QUANTIZE_H
#include "kernels/linear/layout.h"

#ifdef __wasm_relaxed_simd__
typedef int8_t v_activation_code;
#else
typedef int16_t v_activation_code; /* what i32x4.dot_i16x8 eats */
#endif

/* x = code * scale; sum = scale * (sum of the block's codes). */
typedef struct {
  v_activation_code *codes; /* [rows][32 * blocks] */
  float *scale, *sum;       /* [rows][blocks] */
  uint32_t blocks;
} v_quantized;

V_INLINE uint64_t v_quantized_bytes(uint64_t rows, uint64_t blocks) {
  return rows * blocks * (V_BLOCK * sizeof(v_activation_code) + 2 * sizeof(float));
}

/* Row `row` of q from k floats; what a last, partial block lacks counts as 0. */
void v_quantize_row(const v_quantized *q, uint32_t row, const float *x, uint32_t k);

#endif
