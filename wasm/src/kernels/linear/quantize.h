/* Activations as the micro-kernels read them: four lanes side by side, block by block, so
 * that a tile follows one pointer. Signed codes of 8 or 16 bits with one scale per row and
 * block. A lane is a row; only in the relaxed build, whose dot product eats bytes, a row
 * with 16-bit codes takes two: `code = 256 * high + low`, low in -128 .. 127. */
#ifndef VOLERY_QUANTIZE_H
#define VOLERY_QUANTIZE_H
#include "kernels/linear/layout.h"

#define V_LANES 4
#define V_TILE_ROWS V_LANES

#ifdef __wasm_relaxed_simd__
typedef int8_t v_activation_code;
#define V_WIDE_LANES 2 /* of a row with 16-bit codes */
#else
typedef int16_t v_activation_code; /* what i32x4.dot_i16x8 eats */
#define V_WIDE_LANES 1
#endif

/* Rows in a tile. */
V_INLINE uint32_t v_tile_rows(bool wide) { return wide ? V_LANES / V_WIDE_LANES : V_LANES; }

/* One group of k of the four lanes, each four times, as a vector that meets four columns: a
 * plain load is the one way to it that every engine does well. */
typedef v_activation_code v_activation_group[V_LANES][4 * V_GROUP];

/* x = code * scale, by row. For weights with a min: sum = scale * (sum of the block's codes).
 * For those without: where the integer dot product starts, which takes off what their codes
 * have too much (signed_dot.h). */
typedef struct {
  v_activation_group codes[V_BLOCK / V_GROUP];
  float scale[V_LANES];
  union {
    float sum[V_LANES];
    int32_t start[V_LANES];
  };
} v_activation_block;

typedef struct {
  bool wide;      /* 16-bit codes instead of 8 */
  bool has_min;   /* of the weights */
  int32_t excess; /* of the packed codes of weights without a min: 0 or 128 */
} v_quantization;

/* Quantizes k floats into row `row` of a tile of ceil(k / 32) blocks, `stride` blocks apart;
 * what a last, partial block lacks counts as 0. */
void v_quantize_row(v_activation_block *tile, size_t stride, uint32_t row, const float *x,
                    uint32_t k, v_quantization how);

/* Row `row` of the tile is computed for nothing: tame numbers, which cost no more than others. */
void v_clear_row(v_activation_block *tile, size_t stride, uint32_t row, uint32_t k);

#endif
