/* Block formats, three rows or more by panels of 8 columns: prefill, and decoding of many
 * sequences. Block by block: a block's codes are brought into bytes and its scales into f32
 * once, for the tiles of all rows, whose sums wait in the first cache meanwhile. So the
 * weights come from memory at an even pace, and 4-bit ones cost hardly more than bytes. */
#include "kernels/linear/block_dot.h"
#include "kernels/linear/signed_dot.h"

#define EIGHT 8 /* rows, which have a function of their own */

/* How the products of a block are added up: in 32 bits, or by pairs (block_dot.h). */
typedef enum { BY_DOT, BY_PAIRS } v_way;

/* A block of 32 k of 8 columns, ready for the tiles. */
typedef struct {
  uint8_t low[V_BLOCK * V_PANEL];  /* codes; of split ones the low nibbles */
  uint8_t high[V_BLOCK * V_PANEL]; /* of split ones */
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

V_INLINE void open_split(v_open_block *block, const uint8_t *codes, v128_t nibble) {
  V_UNROLL for (uint32_t i = 0; i < sizeof block->low; i += 16) {
    const v128_t c = v_load(codes + i);
    v_store(block->low + i, wasm_v128_and(c, nibble));
    v_store(block->high + i, high_nibbles(c, nibble));
  }
}

V_INLINE void open_scales(v_open_block *block, const uint16_t *scale, const uint16_t *min) {
  v_store_columns(block->scale, v_widen_columns(scale));
  if (min) v_store_columns(block->min, v_widen_columns(min));
}

/* The same for codes of 0..15, by pairs. */
V_INLINE void dot_pairs(const uint32_t lanes, v_columns *dot, const v_activation_block *x,
                        const uint8_t *codes) {
  v_columns pairs[V_LANES];
  const v_activation_group *a = x->codes;
  const v_columns first = v_load_group(codes);
  V_UNROLL for (uint32_t l = 0; l < lanes; l++) pairs[l] = v_pairs_of((*a)[l], first);
  V_KEEP_LOOP for (uint32_t g = 1; g < V_BLOCK / V_GROUP; g++) {
    a++;
    codes += V_GROUP_BYTES;
    V_BASE(a);
    V_BASE(codes);
    const v_columns w = v_load_group(codes);
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) v_pairs_group(&pairs[l], (*a)[l], w);
  }
  V_UNROLL for (uint32_t l = 0; l < lanes; l++) dot[l] = v_pairs_to_dot(pairs[l]);
}

/* Signed weights: adds where the integers of a row start to those of its lanes, of which the
 * last is not shifted. */
V_INLINE void add_start(const uint32_t lanes, const bool wide, v_columns *dot,
                        const v_activation_block *x) {
  const uint32_t per_row = wide ? V_WIDE_LANES : 1;
  V_UNROLL for (uint32_t r = 0; r < lanes / per_row; r++) {
    v_columns *last = &dot[r * per_row + per_row - 1];
    *last = v_add_shifted(*last, v_splat_columns(x->start + r), 0);
  }
}

/* Row `row`'s of four values, in all lanes. Cranelift, whose way is that by pairs, makes three
 * instructions of the load. */
V_INLINE v128_t row_value(const float values[V_LANES], const uint32_t row, const v_way way) {
  if (way == BY_DOT) return wasm_v128_load32_splat(values + row);
  const v128_t x = v_load(values);
  switch (row) {
    case 0: return wasm_i32x4_shuffle(x, x, 0, 0, 0, 0);
    case 1: return wasm_i32x4_shuffle(x, x, 1, 1, 1, 1);
    case 2: return wasm_i32x4_shuffle(x, x, 2, 2, 2, 2);
    default: return wasm_i32x4_shuffle(x, x, 3, 3, 3, 3);
  }
}

/* Takes one block into the sums of a tile's rows. */
V_INLINE void take_block(const uint32_t lanes, const bool wide, const bool has_min, const v_way way,
                         const v_activation_block *x, const v_open_block *block,
                         const uint8_t *codes, float *sums) {
  const uint32_t rows = wide ? lanes / V_WIDE_LANES : lanes;
  const bool is_short = !wide && way == BY_DOT;
  v_columns dot[V_LANES];
  if (way == BY_PAIRS) {
    dot_pairs(lanes, dot, x, codes);
    if (!has_min) {
      v_columns high[V_LANES];
      dot_pairs(lanes, high, x, block->high);
      V_UNROLL for (uint32_t l = 0; l < lanes; l++) dot[l] = v_add_shifted(dot[l], high[l], 4);
      add_start(lanes, wide, dot, x);
    }
  } else {
    V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
      dot[l] = is_short ? v_start_short_dot() : v_zero_columns();
    }
    if (!has_min) add_start(lanes, wide, dot, x);
    dot_codes(lanes, dot, x, codes);
  }
  V_BASE(x);
  V_BASE(sums);
  const v_columns scale = v_load_columns(block->scale);
  const v_columns min = has_min ? v_load_columns(block->min) : scale;
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    const v_columns product =
        is_short ? v_short_dot_to_floats(dot[r]) : v_dot_to_floats(v_row_dot(dot, r, wide));
    v_columns sum = v_load_columns(sums + r * V_PANEL);
    v_add_scaled(&sum, product, scale, row_value(x->scale, r, way));
    if (has_min) v_add_min(&sum, min, row_value(x->sum, r, way));
    v_store_columns(sums + r * V_PANEL, sum);
  }
}

/* Opens the block at w; returns its codes. `nibble`: 15 in every byte, made outside the loop
 * over the blocks. */
V_INLINE const uint8_t *open_block(const v_format format, const v_way way, v_open_block *block,
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
      if (way == BY_DOT) return b->codes;
      open_split(block, b->codes, nibble);
      return block->low;
    }
  }
}

/* Takes the sums [panels][tiles][step][V_PANEL] to their places. */
static void finish(const float *sums, uint32_t rows, uint32_t step, uint32_t panels,
                   uint32_t columns, v_tile_out to) {
  const uint32_t padded = (uint32_t)v_round_up(rows, step);
  for (; panels > 0; panels--, sums += padded * V_PANEL) {
    for (uint32_t r = 0; r < rows; r++) {
      v_finish_row(v_load_columns(sums + r * V_PANEL), &to, r);
    }
    to.out += columns;
    if (to.residual) to.residual += columns;
    if (to.bias) to.bias += columns;
  }
}

/* `known`: the whole tiles of the rows where they are known when compiling, or 0. */
V_INLINE void multiply(const v_format format, const v_way way, const bool wide,
                       const uint32_t known, const v_activation_block *x, uint32_t rows,
                       const v_panels *panels, uint32_t blocks, const v_tile_out *to) {
  const bool has_min = v_has_min(format);
  const uint32_t bytes = v_block_bytes(format), step = v_tile_rows(wide);
  const uint32_t tiles = known ? known : v_ceil_div(rows, step);
  /* The last tile is computed whole or by half. */
  const bool half = !known && rows - (tiles - 1) * step <= step / 2;
  const uint32_t whole = half ? tiles - 1 : tiles;
  float sums[V_MOST_ROWS * V_PANEL];
  v_zero_floats(sums, panels->count * tiles * step * V_PANEL);
  const uint8_t *w = panels->first;
  v_open_block block;
  const v128_t nibble = V_I32(0x0f0f0f0f);
  for (; blocks > 0; blocks--, w += bytes, x += tiles) {
    const uint8_t *panel = w;
    float *sum = sums;
    for (uint32_t p = panels->count; p > 0; p--, panel += panels->apart) {
      const uint8_t *codes = open_block(format, way, &block, panel, nibble);
      const v_activation_block *tile = x;
      for (uint32_t t = whole; t > 0; t--, tile++, sum += step * V_PANEL) {
        take_block(V_LANES, wide, has_min, way, tile, &block, codes, sum);
      }
      if (half) {
        take_block(V_LANES / 2, wide, has_min, way, tile, &block, codes, sum);
        sum += step * V_PANEL;
      }
    }
  }
  finish(sums, rows, step, panels->count, panels->columns, *to);
}

/* A function for every way, each with room of its own for its sums, and one for eight rows:
 * the smaller the function, the more of its loops V8 keeps in registers. */
#define DEFINE_BLOCKS(name, format, way, wide, known)                                             \
  static V_NOINLINE void name(const v_activation_block *x, uint32_t rows, const v_panels *panels, \
                              uint32_t blocks, const v_tile_out *to) {                            \
    multiply(format, way, wide, known, x, rows, panels, blocks, to);                              \
  }
DEFINE_BLOCKS(i4, V_FORMAT_I4B32, BY_DOT, false, 0)
DEFINE_BLOCKS(i4_eight, V_FORMAT_I4B32, BY_DOT, false, EIGHT / V_LANES)
DEFINE_BLOCKS(i4_wide, V_FORMAT_I4B32, BY_DOT, true, 0)
DEFINE_BLOCKS(i8, V_FORMAT_I8B32, BY_DOT, false, 0)
DEFINE_BLOCKS(i8_eight, V_FORMAT_I8B32, BY_DOT, false, EIGHT / V_LANES)
DEFINE_BLOCKS(i8_wide, V_FORMAT_I8B32, BY_DOT, true, 0)
DEFINE_BLOCKS(s8, V_FORMAT_S8B32, BY_DOT, false, 0)
DEFINE_BLOCKS(s8_eight, V_FORMAT_S8B32, BY_DOT, false, EIGHT / V_LANES)
DEFINE_BLOCKS(s8_wide, V_FORMAT_S8B32, BY_DOT, true, 0)
#ifdef __wasm_relaxed_simd__
DEFINE_BLOCKS(i4_pairs, V_FORMAT_I4B32, BY_PAIRS, false, 0)
DEFINE_BLOCKS(i4_pairs_wide, V_FORMAT_I4B32, BY_PAIRS, true, 0)
DEFINE_BLOCKS(s8_pairs, V_FORMAT_S8B32, BY_PAIRS, false, 0)
DEFINE_BLOCKS(s8_pairs_wide, V_FORMAT_S8B32, BY_PAIRS, true, 0)
#endif

#define CALL(name) name(x, rows, panels, blocks, to)
#define DISPATCH(name) (wide ? CALL(name##_wide) : rows == EIGHT ? CALL(name##_eight) : CALL(name))

void v_linear_blocks(v_format format, const v_activation_block *x, uint32_t rows, bool wide,
                     const v_panels *panels, uint32_t blocks, const v_tile_out *to) {
#ifdef __wasm_relaxed_simd__
  if (v_signed_dot_now() == V_SIGNED_SPLIT && format == V_FORMAT_I4B32) {
    wide ? CALL(i4_pairs_wide) : CALL(i4_pairs);
    return;
  }
  if (v_signed_dot_now() == V_SIGNED_SPLIT && format == V_FORMAT_S8B32) {
    wide ? CALL(s8_pairs_wide) : CALL(s8_pairs);
    return;
  }
#endif
  switch (format) {
    case V_FORMAT_I4B32: DISPATCH(i4); break;
    case V_FORMAT_I8B32: DISPATCH(i8); break;
    default: DISPATCH(s8); break;
  }
}
