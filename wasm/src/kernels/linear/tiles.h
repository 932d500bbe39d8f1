/* The micro-kernels: a tile of 1 to 4 rows by one panel of 8 columns, plus bias and
 * residual while it is in registers. Names say format and tile; the instruction set is the
 * build's. A row's bits do not depend on the number of rows in its tile. */
#ifndef VOLERY_LINEAR_TILES_H
#define VOLERY_LINEAR_TILES_H
#include "kernels/linear/quantize.h"

/* A panel's scales and mins of one block in f32: widened once for all tiles of a panel. */
typedef struct {
  float scale[V_PANEL], min[V_PANEL];
} v_block_scales;

/* Where the results go. Without a bias or a residual the pointer is NULL. */
typedef struct {
  float *out;
  const float *residual; /* out's layout; may be out */
  size_t stride;         /* floats from row to row of both */
  const float *bias;     /* [8] */
} v_tile_out;

void v_widen_scales_i8(v_block_scales *to, const v_block_i8 *panel, uint32_t blocks);
void v_widen_scales_i4(v_block_scales *to, const v_block_i4 *panel, uint32_t blocks);

void v_linear_i8b32_4x8(const v_activation_block *x, uint32_t rows, const v_block_i8 *panel,
                        const v_block_scales *scales, uint32_t blocks, const v_tile_out *to);
void v_linear_i4b32_4x8(const v_activation_block *x, uint32_t rows, const v_block_i4 *panel,
                        const v_block_scales *scales, uint32_t blocks, const v_tile_out *to);
/* x: [k][4], rows side by side; panel: [k][8]. */
void v_linear_f32_4x8(const float *x, uint32_t rows, const float *panel, uint32_t k,
                      const v_tile_out *to);

#endif
