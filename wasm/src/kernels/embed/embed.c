/* out[t] = scale * table[id[t]] + positions[pos[t] + position_offset] + constant. */
#include "kernels/kernels.h"
#include "kernels/linear/layout.h"
#include "kernels/linear/signed_dot.h"
#include "math/exponential.h"

typedef struct {
  const uint8_t *row; /* element 0 of the row; block formats: its panel */
  uint32_t stride;    /* elements from one column to the next: 8 inside panels */
  uint32_t column;    /* block formats: the row's place in the panel */
  float scale;        /* I8R */
  v_format format;
} v_row;

static v_row row_of(const v_weight *w, uint32_t row) {
  v_row r = {NULL, 1, 0, 1.0f, w->format};
  if (v_is_block_format(w->format)) {
    r.row = w->data + (row / V_PANEL) * w->panel_bytes;
    r.column = row % V_PANEL;
    r.stride = 0;
  } else if (w->layout == V_LAYOUT_PANELS) { /* tied to a linear layer's f32 / f16 weight */
    r.row = w->data + (row / 8) * w->panel_bytes + (row % 8) * (w->format == V_FORMAT_F32 ? 4 : 2);
    r.stride = 8;
  } else {
    r.row = w->data + row * w->row_bytes;
    if (w->format == V_FORMAT_I8R) r.scale = w->row_scale[row];
  }
  return r;
}

/* Codes k .. k + 3 of a block, as floats; `codes` is the block's or, of 4-bit ones, the
 * part of it that holds the shared bytes of k and k + 16. */
static v128_t codes_at(const uint8_t *codes, uint32_t column, uint32_t k, v_format format) {
  int32_t q[4];
  for (uint32_t l = 0; l < 4; l++) {
    if (format == V_FORMAT_I4B32) {
      const uint8_t shared = codes[v_code_index(column, (k + l) % (V_BLOCK / 2))];
      q[l] = k < V_BLOCK / 2 ? shared & 15 : shared >> 4;
    } else {
      const uint8_t flip = format == V_FORMAT_S8B32 ? v_signed_flip() : 0;
      q[l] = (int8_t)(codes[v_code_index(column, k + l)] ^ flip);
    }
  }
  return wasm_f32x4_convert_i32x4(v_load(q));
}

/* Columns i .. i+3 of a block format's row: q * scale + min. */
static v128_t block_at(const v_row *r, uint32_t i) {
  const uint32_t block = i / V_BLOCK, k = i % V_BLOCK;
  switch (r->format) {
    case V_FORMAT_I4B32: {
      const v_block_i4 *b = (const v_block_i4 *)(const void *)r->row + block;
      return v_muladd(codes_at(b->codes, r->column, k, r->format),
                      v_splat(v_f16_to_f32(&b->scale[r->column])),
                      v_splat(v_f16_to_f32(&b->min[r->column])));
    }
    case V_FORMAT_I8B32: {
      const v_block_i8 *b = (const v_block_i8 *)(const void *)r->row + block;
      return v_muladd(codes_at(b->codes, r->column, k, r->format),
                      v_splat(v_f16_to_f32(&b->scale[r->column])),
                      v_splat(v_f16_to_f32(&b->min[r->column])));
    }
    default: {
      const v_block_s8 *b = (const v_block_s8 *)(const void *)r->row + block;
      return v_mul(codes_at(b->codes, r->column, k, r->format),
                   v_splat(v_f16_to_f32(&b->scale[r->column])));
    }
  }
}

/* Columns i .. i+3. Tables have slack behind them, so the lanes past the last column
 * may be read; they are not stored. */
static inline v128_t row_at(const v_row *r, uint32_t i, uint32_t lanes) {
  if (r->stride == 0) return block_at(r, i);
  if (__builtin_expect(r->stride != 1, 0)) {
    float x[4] = {0};
    for (uint32_t l = 0; l < lanes; l++) {
      const size_t at = (size_t)(i + l) * r->stride;
      x[l] = r->format == V_FORMAT_F32 ? ((const float *)(const void *)r->row)[at]
                                       : v_f16_to_f32(r->row + 2 * at);
    }
    return v_load(x);
  }
  switch (r->format) {
    case V_FORMAT_F32: return v_load(r->row + 4 * (size_t)i);
    case V_FORMAT_F16: return v_f16x4_to_f32x4(r->row + 2 * (size_t)i);
    default: {
      v128_t q = wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(r->row + i));
      return v_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(q)), v_splat(r->scale));
    }
  }
}

void v_embed_run(v_task *t, uint32_t tile) {
  const v_weight *table = v_tensor(t, V_EMBED_TABLE);
  const v_weight *positions =
      t->op->tensors[V_EMBED_POSITIONS] < 0 ? NULL : v_tensor(t, V_EMBED_POSITIONS);
  const float *constant = v_vector(t, V_EMBED_CONSTANT);
  const uint32_t width = v_width(t, t->op->out);
  const v128_t scale = v_splat(t->op->floats[V_EMBED_SCALE]);
  float *out = v_slot(t, t->op->out);
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    const v_row word = row_of(table, (uint32_t)t->ws->tokens[r]);
    v_row place = word;
    if (positions) {
      place = row_of(positions, t->ws->positions[r] + t->op->uints[V_EMBED_POSITION_OFFSET]);
    }
    float *y = out + (size_t)r * width;
    V_FOR_COLUMNS(i, lanes, width) {
      v128_t x = v_mul(row_at(&word, i, lanes), scale);
      if (positions) x = v_add(x, row_at(&place, i, lanes));
      if (constant) x = v_add(x, v_at(constant + i, lanes));
      v_put(y + i, x, lanes);
    }
  }
}
