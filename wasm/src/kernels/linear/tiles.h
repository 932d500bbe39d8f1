/* The micro-kernels: a few rows by panels of 8 columns. A row's bits do not depend on the
 * number of rows beside it, nor on the kernel. */
#ifndef VOLERY_LINEAR_TILES_H
#define VOLERY_LINEAR_TILES_H
#include "kernels/linear/quantize.h"

#define V_MOST_ROWS 32 /* of a row panel */

/* Column panels that are computed side by side: `count` of them, `apart` bytes and `columns`
 * columns from one to the next. Far apart, since one thread gets up to twice as much from
 * memory over several streams as over one. */
typedef struct {
  const uint8_t *first;
  size_t apart;
  uint32_t count, columns;
} v_panels;

/* Where the results go. Without a bias or a residual the pointer is NULL. */
typedef struct {
  float *out;
  const float *residual; /* out's layout; may be out */
  size_t stride;         /* floats from row to row of both */
  const float *bias;     /* [8] */
} v_tile_out;

/* Block formats: up to V_MOST_ROWS rows by panels, which share room for the sums of
 * V_MOST_ROWS rows. x: [blocks][tiles], for tiles = ceil(rows / v_tile_rows(wide)). */
void v_linear_blocks(v_format format, const v_activation_block *x, uint32_t rows, bool wide,
                     const v_panels *panels, uint32_t blocks, const v_tile_out *to);

/* Block formats: 1 row, or 2 with 8-bit codes, by v_streams panels, panel_bytes apart, to
 * out[row * row_stride + panel * panel_stride + column]. */
void v_linear_streams(v_format format, const v_activation_block *x, uint32_t rows, bool wide,
                      const uint8_t *panel, size_t panel_bytes, uint32_t blocks, float *out,
                      size_t row_stride, size_t panel_stride);

/* How many panels v_linear_streams takes at once; 0 where it does not take the rows. */
uint32_t v_streams(v_format format, uint32_t rows, bool wide);

/* f32: x: [k][4], rows side by side; panel: [k][8]. */
void v_linear_f32_4x8(const float *x, uint32_t rows, const float *panel, uint32_t k,
                      const v_tile_out *to);

#endif
