/* The micro-kernels: a tile of 1 to 4 rows by one panel of 8 columns, written to `out`
 * (rows `out_stride` floats apart). Names say format, tile and instruction set. A row's
 * bits do not depend on the number of rows in its tile. */
#ifndef VOLERY_LINEAR_TILES_H
#define VOLERY_LINEAR_TILES_H
#include "kernels/linear/quantize.h"

#define V_TILE_ROWS 4

void v_linear_i8b32_tile(const v_quantized *q, uint32_t row, uint32_t rows,
                         const v_block_i8 *panel, float *out, uint32_t out_stride);
void v_linear_i4b32_tile(const v_quantized *q, uint32_t row, uint32_t rows,
                         const v_block_i4 *panel, float *out, uint32_t out_stride);
/* x: first of the rows, `x_stride` floats apart; panel: [k][8] f32. */
void v_linear_f32_tile(const float *x, size_t x_stride, uint32_t rows, const float *panel,
                       uint32_t k, float *out, uint32_t out_stride);

#endif
