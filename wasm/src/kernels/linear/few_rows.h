/* The block formats' kernels for so few rows that one tile holds them all: decoding. The
 * weights stream through once, so bytes are time. Several panels are read side by side, far
 * apart, since one thread gets more from memory over several streams (1.3 times as much as
 * over one), and the f16 scales are widened where they are used. Every element is computed
 * as in the 4x8 kernels, so it gets the same bits. */
#ifndef VOLERY_FEW_ROWS_H
#define VOLERY_FEW_ROWS_H
#include "kernels/linear/block_dot.h"

#define V_MAX_PANELS 4

/* v_f16x4_to_f32x4 with its constants in locals. */
V_INLINE v128_t v_widen_half(const uint16_t *p) {
  const v128_t bits = wasm_i32x4_shl(wasm_i32x4_load16x4(p), 13);
  return v_mul(wasm_v128_and(bits, V_I32((int32_t)0x8fffe000)), V_F32(0x1p112f));
}
V_INLINE v_columns v_widen_columns(const uint16_t *p) {
  return (v_columns){v_widen_half(p), v_widen_half(p + 4)};
}

/* A panel's scales and mins of one block, widened once for all rows. */
typedef struct {
  v_columns scale, min;
} v_wide_scales;

/* Defines `name` as V_DECLARE_FEW_ROWS declares it. `dot_panels(lanes, panels, dot, x, w)`
 * adds a block's integers to zeroed dot[lane * panels + panel]; `widen(w)` gives the
 * block's v_wide_scales, `add_panel(sum, dot, scales, x, row)` takes a row's product into
 * its sums. `most` is how many lanes times panels the registers hold. */
#define V_DEFINE_FEW_ROWS(name, block_type, most, dot_panels, widen, add_panel)                          \
  V_INLINE void name##_tile(const uint32_t rows, const bool wide, const uint32_t panels,          \
                            const v_activation_block *x, const uint8_t *panel, size_t bytes,      \
                            uint32_t blocks, float *out, size_t row_stride, size_t panel_stride) {\
    const uint32_t lanes = wide ? rows * V_WIDE_LANES : rows;                                     \
    v_columns sum[V_LANES * V_MAX_PANELS];                                                        \
    const block_type *w[V_MAX_PANELS];                                                            \
    V_UNROLL for (uint32_t i = 0; i < rows * panels; i++) sum[i] = v_zero_columns();              \
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {                                              \
      w[p] = (const block_type *)(const void *)(panel + p * bytes);                               \
    }                                                                                             \
    for (; blocks > 0; blocks--, x++) {                                                           \
      v_columns dot[V_LANES * V_MAX_PANELS];                                                      \
      V_UNROLL for (uint32_t i = 0; i < lanes * panels; i++) dot[i] = v_zero_columns();           \
      dot_panels(lanes, panels, dot, x, w);                                                       \
      V_BASE(x);                                                                                  \
      V_UNROLL for (uint32_t p = 0; p < panels; p++) {                                            \
        V_BASE(w[p]);                                                                             \
        const v_wide_scales scales = widen(w[p]);                                                 \
        V_UNROLL for (uint32_t r = 0; r < rows; r++) {                                            \
          v_columns mine[V_WIDE_LANES];                                                           \
          V_UNROLL for (uint32_t l = 0; l < V_WIDE_LANES; l++) {                                  \
            mine[l] = dot[(wide ? r * V_WIDE_LANES + l : r) * panels + p];                        \
          }                                                                                       \
          const v_columns product = v_dot_to_floats(v_row_dot(mine, 0, wide));                    \
          add_panel(&sum[r * panels + p], product, &scales, x, r);                                \
        }                                                                                         \
        w[p]++;                                                                                   \
      }                                                                                           \
    }                                                                                             \
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {                                                \
      V_UNROLL for (uint32_t p = 0; p < panels; p++) {                                            \
        v_store_columns(out + r * row_stride + p * panel_stride, sum[r * panels + p]);            \
      }                                                                                           \
    }                                                                                             \
  }                                                                                               \
  void name(const v_activation_block *x, uint32_t rows, bool wide, const uint8_t *panel,          \
            size_t bytes, uint32_t panels, uint32_t blocks, float *out, size_t row_stride,        \
            size_t panel_stride) {                                                                \
    if (wide && V_WIDE_LANES > 1) {                                                               \
      if (rows == 1 && panels > 1) {                                                              \
        name##_tile(1, true, (most) / 2, x, panel, bytes, blocks, out, row_stride, panel_stride); \
      } else if (rows == 1) {                                                                     \
        name##_tile(1, true, 1, x, panel, bytes, blocks, out, row_stride, panel_stride);          \
      } else {                                                                                    \
        name##_tile(2, true, 1, x, panel, bytes, blocks, out, row_stride, panel_stride);          \
      }                                                                                           \
    } else if (rows == 1 && panels > 1) {                                                         \
      name##_tile(1, false, most, x, panel, bytes, blocks, out, row_stride, panel_stride);        \
    } else if (rows == 2 && panels > 1) {                                                         \
      name##_tile(2, false, (most) / 2, x, panel, bytes, blocks, out, row_stride, panel_stride);  \
    } else {                                                                                      \
      V_DISPATCH_ROWS(name##_tile, rows, false, 1, x, panel, bytes, blocks, out, row_stride,      \
                      panel_stride)                                                               \
    }                                                                                             \
  }

#endif
