/* How linear layers lie in memory: panels of 8 output columns (8 rows of the weight),
 * so that one 128-bit vector of results needs no horizontal sum.
 *
 * f32, f16: for every k, the 8 columns' values.
 * Block formats: for every block of 32 k, one of the records below.
 *
 * The codes' order follows the instruction that eats them. The relaxed dot product
 * multiplies groups of 4 neighbouring k of 4 columns: [8 groups][8 columns][4 k]. Plain
 * SIMD has i32x4.dot_i16x8, which multiplies pairs: [16 pairs][8 columns][2 k]. The 4-bit
 * codes of k and k + 16 share a byte, as in the file, so their order is that of the
 * first 16 k, and the shared bytes are split in registers. */
#ifndef VOLERY_LINEAR_LAYOUT_H
#define VOLERY_LINEAR_LAYOUT_H
#include "core/model.h"

#define V_PANEL 8

#ifdef __wasm_relaxed_simd__
#define V_GROUP 4 /* neighbouring k of one column */
#else
#define V_GROUP 2
#endif

/* Scales and mins stay f16: at one row, bytes per weight are time. */
typedef struct {
  uint8_t codes[V_BLOCK * V_PANEL];
  uint16_t scale[V_PANEL], min[V_PANEL];
} v_block_i8;

typedef struct {
  uint8_t codes[V_BLOCK / 2 * V_PANEL];
  uint16_t scale[V_PANEL], min[V_PANEL];
} v_block_i4;

typedef struct {
  uint8_t codes[V_BLOCK * V_PANEL];
  uint16_t scale[V_PANEL];
} v_block_s8;

/* Where the code of row `column` and k = `k` of a block is. */
V_INLINE uint32_t v_code_index(uint32_t column, uint32_t k) {
  return k / V_GROUP * (V_PANEL * V_GROUP) + column * V_GROUP + k % V_GROUP;
}

/* Formats with a scale for every 32 columns. They always lie in panels. */
V_INLINE bool v_is_block_format(v_format format) { return format >= V_FORMAT_I8B32; }

/* Whether blocks have a min besides the scale. */
V_INLINE bool v_has_min(v_format format) { return format != V_FORMAT_S8B32; }

V_INLINE uint32_t v_block_bytes(v_format format) {
  switch (format) {
    case V_FORMAT_I8B32: return sizeof(v_block_i8);
    case V_FORMAT_I4B32: return sizeof(v_block_i4);
    default: return sizeof(v_block_s8);
  }
}

V_INLINE uint64_t v_panel_bytes(v_format format, uint32_t k) {
  switch (format) {
    case V_FORMAT_F32: return (uint64_t)k * V_PANEL * 4;
    case V_FORMAT_F16: return (uint64_t)k * V_PANEL * 2;
    case V_FORMAT_I8R: return 0;
    default: return (uint64_t)v_ceil_div(k, V_BLOCK) * v_block_bytes(format);
  }
}

#endif
