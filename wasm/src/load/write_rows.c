#include "load/write_rows.h"

#include "core/simd.h"
#include "kernels/linear/layout.h"
#include "kernels/linear/signed_dot.h"

v_row_parts v_row_parts_of(const v_weight *w) {
  const uint64_t cols = w->cols, blocks = v_ceil_div(w->cols, V_BLOCK);
  switch (w->format) {
    case V_FORMAT_F32: return (v_row_parts){4 * cols, 0, 0};
    case V_FORMAT_F16: return (v_row_parts){2 * cols, 0, 0};
    case V_FORMAT_I8R: return (v_row_parts){cols, 4, 0};
    case V_FORMAT_I8B32: return (v_row_parts){V_BLOCK * blocks, 2 * blocks, 2 * blocks};
    case V_FORMAT_S8B32: return (v_row_parts){V_BLOCK * blocks, 2 * blocks, 0};
    case V_FORMAT_I4B32: return (v_row_parts){V_BLOCK / 2 * blocks, 2 * blocks, 2 * blocks};
  }
  return (v_row_parts){0, 0, 0};
}

/* Moves the codes of one row's block, exclusive-or'ed with `flip`, to where the kernels read
 * them. */
static void scatter_codes(uint8_t *codes, uint32_t column, const uint8_t *from, uint32_t count,
                          uint8_t flip) {
  for (uint32_t k = 0; k < count; k += V_GROUP) {
    uint8_t *to = codes + v_code_index(column, k);
#ifdef __wasm_relaxed_simd__
    const uint32_t group = v_load_u32(from + k) ^ flip * 0x01010101u;
#else
    const uint16_t group = v_load_u16(from + k) ^ (uint16_t)(flip * 0x0101u);
#endif
    __builtin_memcpy(to, &group, sizeof group);
  }
}

static void pack_i8(v_block_i8 *block, uint32_t column, const uint8_t *data, const uint8_t *scale,
                    const uint8_t *min, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++, block++) {
    scatter_codes(block->codes, column, data + b * V_BLOCK, V_BLOCK, 0);
    block->scale[column] = v_load_u16(scale + 2 * b);
    block->min[column] = v_load_u16(min + 2 * b);
  }
}

static void pack_i4(v_block_i4 *block, uint32_t column, const uint8_t *data, const uint8_t *scale,
                    const uint8_t *min, uint32_t blocks) {
  for (uint32_t b = 0; b < blocks; b++, block++) {
    scatter_codes(block->codes, column, data + b * (V_BLOCK / 2), V_BLOCK / 2, 0);
    block->scale[column] = v_load_u16(scale + 2 * b);
    block->min[column] = v_load_u16(min + 2 * b);
  }
}

static void pack_s8(v_block_s8 *block, uint32_t column, const uint8_t *data, const uint8_t *scale,
                    uint32_t blocks) {
  const uint8_t flip = v_signed_flip();
  for (uint32_t b = 0; b < blocks; b++, block++) {
    scatter_codes(block->codes, column, data + b * V_BLOCK, V_BLOCK, flip);
    block->scale[column] = v_load_u16(scale + 2 * b);
  }
}

static void pack_f32(uint8_t *panel, uint32_t column, const uint8_t *data, uint32_t cols) {
  for (uint32_t k = 0; k < cols; k++) {
    __builtin_memcpy(panel + ((size_t)k * V_PANEL + column) * 4, data + 4 * (size_t)k, 4);
  }
}

static void pack_f16(uint8_t *panel, uint32_t column, const uint8_t *data, uint32_t cols) {
  for (uint32_t k = 0; k < cols; k++) {
    __builtin_memcpy(panel + ((size_t)k * V_PANEL + column) * 2, data + 2 * (size_t)k, 2);
  }
}

static void pack_row(const v_weight *w, uint32_t row, const uint8_t *data, const uint8_t *scale,
                     const uint8_t *min) {
  const uint32_t blocks = v_ceil_div(w->cols, V_BLOCK), column = row % V_PANEL;
  uint8_t *panel = w->data + row / V_PANEL * w->panel_bytes;
  /* The last panel may be incomplete: its missing columns must compute zeros. */
  if (column == 0 && w->rows - row < V_PANEL) v_zero(panel, (size_t)w->panel_bytes);
  switch (w->format) {
    case V_FORMAT_F32: pack_f32(panel, column, data, w->cols); break;
    case V_FORMAT_F16: pack_f16(panel, column, data, w->cols); break;
    case V_FORMAT_I8B32:
      pack_i8((v_block_i8 *)(void *)panel, column, data, scale, min, blocks);
      break;
    case V_FORMAT_I4B32:
      pack_i4((v_block_i4 *)(void *)panel, column, data, scale, min, blocks);
      break;
    case V_FORMAT_S8B32: pack_s8((v_block_s8 *)(void *)panel, column, data, scale, blocks); break;
    case V_FORMAT_I8R: break;
  }
}

static bool has_high_bit(const uint8_t *data, uint64_t bytes) {
  v128_t all = wasm_i32x4_const_splat(0);
  uint64_t i = 0;
  for (; i + 16 <= bytes; i += 16) all = wasm_v128_or(all, v_load(data + i));
  return wasm_i8x16_bitmask(all) != 0; /* block rows are multiples of 16 bytes */
}

static bool has_minus_128(const uint8_t *data, uint64_t bytes) {
  bool found = false;
  for (uint64_t i = 0; i < bytes; i++) found |= data[i] == 0x80;
  return found;
}

bool v_store_rows(v_weight *w, uint32_t row0, uint32_t rows, const uint8_t *data,
                  const uint8_t *scale, const uint8_t *min) {
  const v_row_parts parts = v_row_parts_of(w);
  if (w->layout == V_LAYOUT_UNUSED) return true;
  if (w->format == V_FORMAT_I8B32 && has_high_bit(data, rows * parts.data)) return false;
  if (w->format == V_FORMAT_I8R && has_minus_128(data, rows * parts.data)) return false;
  if (w->layout == V_LAYOUT_ROWS) {
    v_copy(w->data + row0 * w->row_bytes, data, (size_t)(rows * parts.data));
    if (w->format == V_FORMAT_I8R) v_copy(w->row_scale + row0, scale, rows * sizeof(float));
    return true;
  }
  for (uint32_t r = 0; r < rows; r++) {
    pack_row(w, row0 + r, data + r * parts.data, scale + r * parts.scale, min + r * parts.min);
  }
  return true;
}
