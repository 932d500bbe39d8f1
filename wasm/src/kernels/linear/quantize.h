/* Activations as the micro-kernels read them: four rows side by side, block by block, so
 * that a tile follows one pointer. Signed 8-bit codes with one scale per row and block. */
#ifndef VOLERY_QUANTIZE_H
#define VOLERY_QUANTIZE_H
#include "kernels/linear/layout.h"

#define V_TILE_ROWS 4

#ifdef __wasm_relaxed_simd__
typedef int8_t v_activation_code;
#else
typedef int16_t v_activation_code; /* what i32x4.dot_i16x8 eats */
#endif

/* One group of k of the four rows: 16 bytes. */
typedef v_activation_code v_activation_group[V_TILE_ROWS][V_GROUP];

/* x = code * scale; sum = scale * (sum of the block's codes). */
typedef struct {
  v_activation_group codes[V_BLOCK / V_GROUP];
  float scale[V_TILE_ROWS], sum[V_TILE_ROWS];
} v_activation_block;

/* Quantizes k floats into row `row` (0..3) of a tile of ceil(k / 32) blocks; what a last,
 * partial block lacks counts as 0. */
void v_quantize_row(v_activation_block *tile, uint32_t row, const float *x, uint32_t k);

#endif
