/* Block formats, three rows or more by a panel of 8 columns: prefill, and decoding of many
 * sequences. Block by block: a block's codes are brought into bytes and its scales into f32
 * once, for the tiles of all rows, whose sums wait in the first cache meanwhile. So the
 * weights come from memory at an even pace, and 4-bit ones cost hardly more than bytes. */
#include "kernels/linear/block_dot.h"
#include "kernels/linear/signed_dot.h"

/* A block of 32 k of 8 columns, ready for the tiles. */
typedef struct {
  uint8_t low[V_BLOCK * V_PANEL];  /* codes; of split ones the seven low bits */
  uint8_t sign[V_BLOCK * V_PANEL]; /* of split ones 64 for the top bit */
  float scale[V_PANEL], min[V_PANEL];
} v_open_block;

/* Four lanes, or the first two, of one tile. */
V_INLINE void dot_codes(const uint32_t lanes, v_columns *dot, const v_activation_block *x,
                        const uint8_t *codes) {
  const v_activation_group *a = x->codes;
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++, codes += V_GROUP_BYTES) {
    V_BASE(a);
    V_BASE(codes);
    const v_columns w = v_load_group(codes);
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_dot_group(&dot[l], (*a)[l], w);
  }
}

/* x86 has no shift of bytes; engines emulate it at more cost than this. */
V_INLINE v128_t high_nibbles(v128_t codes, v128_t nibble) {
  return wasm_v128_and(wasm_u16x8_shr(codes, 4), nibble);
}

V_INLINE void open_nibbles(v_open_block *block, const uint8_t *codes, v128_t nibble) {
  const uint32_t half = V_BLOCK / 2 * V_PANEL;
  V_UNROLL for (uint32_t i = 0; i < half; i += 16) {
    const v128_t c = v_load(codes + i);
    v_store(block->low + i, wasm_v128_and(c, nibble));
    v_store(block->low + half + i, high_nibbles(c, nibble));
  }
}

static void open_signed(v_open_block *block, const uint8_t *codes) {
  const v128_t low_bits = V_I32(0x7f7f7f7f), bit = V_I32(0x40404040);
  V_UNROLL for (uint32_t i = 0; i < sizeof block->low; i += 16) {
    const v128_t c = v_load(codes + i);
    v_store(block->low + i, wasm_v128_and(c, low_bits));
    v_store(block->sign + i, wasm_v128_and(wasm_u16x8_shr(c, 1), bit));
  }
}

V_INLINE void open_scales(v_open_block *block, const uint16_t *scale, const uint16_t *min) {
  v_store_columns(block->scale, v_widen_columns(scale));
  if (min) v_store_columns(block->min, v_widen_columns(min));
}

/* Signed weights: adds what the dot products of lanes start with to dot. */
V_INLINE void start_signed(const uint32_t lanes, const bool wide, v_columns *dot,
                           const v_activation_block *x, const uint8_t *sign) {
  const uint32_t per_row = wide ? V_WIDE_LANES : 1;
  if (sign) {
    v_columns bits[V_LANES];
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) bits[l] = v_zero_columns();
    dot_codes(lanes, bits, x, sign);
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
      dot[l].lo = wasm_i32x4_sub(dot[l].lo, wasm_i32x4_shl(bits[l].lo, 1));
      dot[l].hi = wasm_i32x4_sub(dot[l].hi, wasm_i32x4_shl(bits[l].hi, 1));
    }
    return;
  }
  V_UNROLL for (uint32_t r = 0; r < lanes / per_row; r++) {
    /* Of two lanes of a row, the low one: it is not shifted. */
    v_columns *low = &dot[r * per_row + per_row - 1];
    const v_columns start = v_splat_columns(x->start + r);
    *low = (v_columns){wasm_i32x4_add(low->lo, start.lo), wasm_i32x4_add(low->hi, start.hi)};
  }
}

/* Takes one block into the sums of a tile's rows. */
V_INLINE void take_block(const uint32_t lanes, const bool wide, const bool has_min,
                         const v_activation_block *x, const v_open_block *block,
                         const uint8_t *codes, bool split, float *sums) {
  const uint32_t rows = wide ? lanes / V_WIDE_LANES : lanes;
  v_columns dot[V_LANES];
  V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
    dot[l] = wide ? v_zero_columns() : v_start_short_dot();
  }
  if (!has_min) start_signed(lanes, wide, dot, x, split ? block->sign : NULL);
  dot_codes(lanes, dot, x, codes);
  V_BASE(x);
  V_BASE(sums);
  const v_columns scale = v_load_columns(block->scale);
  const v_columns min = has_min ? v_load_columns(block->min) : scale;
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    const v_columns product =
        wide ? v_dot_to_floats(v_row_dot(dot, r, true)) : v_short_dot_to_floats(dot[r]);
    v_columns sum = v_load_columns(sums + r * V_PANEL);
    v_add_scaled(&sum, product, scale, x, r);
    if (has_min) v_add_min(&sum, min, x, r);
    v_store_columns(sums + r * V_PANEL, sum);
  }
}

/* Opens the block at w; returns its codes. `nibble`: 15 in every byte, made outside the loop
 * over the blocks. */
V_INLINE const uint8_t *open_block(v_format format, bool split, v_open_block *block,
                                   const uint8_t *w, v128_t nibble) {
  switch (format) {
    case V_FORMAT_I4B32: {
      const v_block_i4 *b = (const v_block_i4 *)(const void *)w;
      open_nibbles(block, b->codes, nibble);
      open_scales(block, b->scale, b->min);
      return block->low;
    }
    case V_FORMAT_I8B32: {
      const v_block_i8 *b = (const v_block_i8 *)(const void *)w;
      open_scales(block, b->scale, b->min);
      return b->codes;
    }
    default: {
      const v_block_s8 *b = (const v_block_s8 *)(const void *)w;
      open_scales(block, b->scale, NULL);
      if (!split) return b->codes;
      open_signed(block, b->codes);
      return block->low;
    }
  }
}

V_INLINE void multiply(const bool wide, const bool has_min, v_format format,
                       const v_activation_block *x, uint32_t rows, const uint8_t *panel,
                       uint32_t blocks, float *sums) {
  const bool split = !has_min && v_signed_dot_now() == V_SIGNED_SPLIT;
  const uint32_t bytes = v_block_bytes(format), step = v_tile_rows(wide);
  v_open_block block;
  const v128_t nibble = V_I32(0x0f0f0f0f);
  for (; blocks > 0; blocks--, panel += bytes) {
    const uint8_t *codes = open_block(format, split, &block, panel, nibble);
    uint32_t r = 0;
    for (; r + step / 2 < rows; r += step, x++) {
      take_block(V_LANES, wide, has_min, x, &block, codes, split, sums + r * V_PANEL);
    }
    if (r < rows) {
      take_block(V_LANES / 2, wide, has_min, x, &block, codes, split, sums + r * V_PANEL);
      x++;
    }
  }
}

void v_linear_blocks(v_format format, const v_activation_block *x, uint32_t rows, bool wide,
                     const uint8_t *panel, uint32_t blocks, const v_tile_out *to) {
  float sums[V_MOST_ROWS * V_PANEL];
  v_zero_floats(sums, (uint32_t)v_round_up(rows, v_tile_rows(wide)) * V_PANEL);
  const bool has_min = v_has_min(format);
  if (has_min && !wide) {
    multiply(false, true, format, x, rows, panel, blocks, sums);
  } else if (has_min) {
    multiply(true, true, format, x, rows, panel, blocks, sums);
  } else if (!wide) {
    multiply(false, false, format, x, rows, panel, blocks, sums);
  } else {
    multiply(true, false, format, x, rows, panel, blocks, sums);
  }
  for (uint32_t r = 0; r < rows; r++) v_finish_row(v_load_columns(sums + r * V_PANEL), to, r);
}
