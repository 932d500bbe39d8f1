/* Block formats, one or two rows: decoding. The weights stream through once, so bytes are
 * time. Several panels are read side by side, far apart, since one thread gets more from
 * memory over several streams (1.3 times as much as over one), and sums stay in registers.
 * Every element is computed as in linear_blocks.c, so it gets the same bits. */
#include "kernels/linear/block_dot.h"
#include "kernels/linear/signed_dot.h"

#define MOST_PANELS 4

/* Codes of a block of each of `panels` panels, times one or two lanes: adds the integers to
 * dot[lane * panels + panel]. */
#define DECLARE_DOT(name)                                                                         \
  V_INLINE void name(const uint32_t lanes, const uint32_t panels, v_columns *dot,                 \
                     const v_activation_block *x, const uint8_t *const *w)

DECLARE_DOT(dot_nibbles) {
  const v128_t nibble = V_I32(0x0f0f0f0f);
  const uint32_t half = V_BLOCK / 2 / V_GROUP; /* groups from one nibble to the other */
  const v_activation_group *a = x->codes;
  const uint8_t *c[MOST_PANELS];
  V_UNROLL for (uint32_t p = 0; p < panels; p++) c[p] = w[p];
  V_KEEP_LOOP for (uint32_t g = 0; g < half; g++, a++) {
    V_BASE(a);
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {
      V_BASE(c[p]);
#ifdef __wasm_relaxed_simd__
      const v128_t c0 = v_load(c[p]), c1 = v_load(c[p] + 16);
      const v_columns low = {wasm_v128_and(c0, nibble), wasm_v128_and(c1, nibble)};
      const v_columns high = {wasm_v128_and(wasm_u16x8_shr(c0, 4), nibble),
                              wasm_v128_and(wasm_u16x8_shr(c1, 4), nibble)};
#else
      const v128_t both = v_load(c[p]), lows = wasm_v128_and(both, nibble);
      const v128_t highs = wasm_v128_and(wasm_u16x8_shr(both, 4), nibble);
      const v_columns low = {wasm_i16x8_extend_low_i8x16(lows), wasm_i16x8_extend_high_i8x16(lows)};
      const v_columns high = {wasm_i16x8_extend_low_i8x16(highs),
                              wasm_i16x8_extend_high_i8x16(highs)};
#endif
      V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
        v_dot_group(&dot[l * panels + p], a[0][l], low);
        v_dot_group(&dot[l * panels + p], a[half][l], high);
      }
      c[p] += V_GROUP_BYTES;
    }
  }
}

DECLARE_DOT(dot_bytes) {
  const v_activation_group *a = x->codes;
  const uint8_t *c[MOST_PANELS];
  V_UNROLL for (uint32_t p = 0; p < panels; p++) c[p] = w[p];
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++) {
    V_BASE(a);
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {
      V_BASE(c[p]);
      const v_columns codes = v_load_group(c[p]);
      V_UNROLL for (uint32_t l = 0; l < lanes; l++) {
        v_dot_group(&dot[l * panels + p], (*a)[l], codes);
      }
      c[p] += V_GROUP_BYTES;
    }
  }
}

/* Of split codes; two lanes times panels, for which V8 has registers. */
DECLARE_DOT(dot_split) {
  const v128_t nibble = V_I32(0x0f0f0f0f);
  v_columns low[2] = {v_zero_columns(), v_zero_columns()};
  v_columns high[2] = {v_zero_columns(), v_zero_columns()};
  const v_activation_group *a = x->codes;
  const uint8_t *c[MOST_PANELS];
  V_UNROLL for (uint32_t p = 0; p < panels; p++) c[p] = w[p];
  V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++) {
    V_BASE(a);
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {
      V_BASE(c[p]);
      const v_columns codes = v_load_group(c[p]);
      const v_columns l = {wasm_v128_and(codes.lo, nibble), wasm_v128_and(codes.hi, nibble)};
      const v_columns h = {wasm_v128_and(wasm_u16x8_shr(codes.lo, 4), nibble),
                           wasm_v128_and(wasm_u16x8_shr(codes.hi, 4), nibble)};
      V_UNROLL for (uint32_t i = 0; i < lanes; i++) {
        v_pairs_group(&low[i * panels + p], (*a)[i], l);
        v_pairs_group(&high[i * panels + p], (*a)[i], h);
      }
      c[p] += V_GROUP_BYTES;
    }
  }
  V_UNROLL for (uint32_t i = 0; i < lanes * panels; i++) {
    dot[i] = v_add_shifted(dot[i], v_pairs_to_dot(low[i]), 0);
    dot[i] = v_add_shifted(dot[i], v_pairs_to_dot(high[i]), 4);
  }
}

/* Defines `name`: `rows` rows by `panels` panels of blocks `block_type`. */
#define DEFINE_STREAMS(name, block_type, has_min, min_of, dot_panels)                                   \
  V_INLINE void name(const uint32_t rows, const bool wide, const uint32_t panels,                 \
                     const v_activation_block *x, const uint8_t *panel, size_t bytes,             \
                     uint32_t blocks, float *out, size_t row_stride, size_t panel_stride) {       \
    const uint32_t per_row = wide ? V_WIDE_LANES : 1, lanes = rows * per_row;                     \
    v_columns sum[MOST_PANELS];                                                                   \
    const block_type *w[MOST_PANELS];                                                             \
    V_UNROLL for (uint32_t i = 0; i < rows * panels; i++) sum[i] = v_zero_columns();              \
    V_UNROLL for (uint32_t p = 0; p < panels; p++) {                                              \
      w[p] = (const block_type *)(const void *)(panel + p * bytes);                               \
    }                                                                                             \
    for (; blocks > 0; blocks--, x++) {                                                           \
      v_columns dot[MOST_PANELS];                                                                 \
      const uint8_t *codes[MOST_PANELS];                                                          \
      V_UNROLL for (uint32_t p = 0; p < panels; p++) codes[p] = w[p]->codes;                      \
      V_UNROLL for (uint32_t i = 0; i < lanes * panels; i++) dot[i] = v_zero_columns();           \
      if (!(has_min)) {                                                                           \
        V_UNROLL for (uint32_t i = 0; i < rows * panels; i++) {                                   \
          /* Of two lanes of a row, the low one: it is not shifted. */                            \
          const uint32_t r = i / panels, l = r * per_row + per_row - 1;                           \
          dot[l * panels + i % panels] = v_splat_columns(x->start + r);                           \
        }                                                                                         \
      }                                                                                           \
      dot_panels(lanes, panels, dot, x, codes);                                                   \
      V_BASE(x);                                                                                  \
      V_UNROLL for (uint32_t p = 0; p < panels; p++) {                                            \
        V_BASE(w[p]);                                                                             \
        const v_columns scale = v_widen_columns(w[p]->scale);                                     \
        V_UNROLL for (uint32_t r = 0; r < rows; r++) {                                            \
          v_columns mine[V_WIDE_LANES];                                                           \
          V_UNROLL for (uint32_t l = 0; l < per_row; l++) {                                       \
            mine[l] = dot[(r * per_row + l) * panels + p];                                        \
          }                                                                                       \
          const v_columns product = v_dot_to_floats(v_row_dot(mine, 0, wide));                    \
          v_columns *to = &sum[r * panels + p];                                                   \
          v_add_scaled(to, product, scale, wasm_v128_load32_splat(x->scale + r));                 \
          if (has_min) {                                                                          \
            v_add_min(to, v_widen_columns(min_of(w[p])), wasm_v128_load32_splat(x->sum + r));     \
          }                                                                                       \
        }                                                                                         \
        w[p]++;                                                                                   \
      }                                                                                           \
    }                                                                                             \
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {                                                \
      V_UNROLL for (uint32_t p = 0; p < panels; p++) {                                            \
        v_store_columns(out + r * row_stride + p * panel_stride, sum[r * panels + p]);            \
      }                                                                                           \
    }                                                                                             \
  }
V_INLINE const uint16_t *min_i4(const v_block_i4 *w) { return w->min; }
V_INLINE const uint16_t *min_i8(const v_block_i8 *w) { return w->min; }
V_INLINE const uint16_t *min_s8(const v_block_s8 *w) { return w->scale; } /* never added */
DEFINE_STREAMS(stream_i4, v_block_i4, true, min_i4, dot_nibbles)
DEFINE_STREAMS(stream_i8, v_block_i8, true, min_i8, dot_bytes)
DEFINE_STREAMS(stream_s8, v_block_s8, false, min_s8, dot_bytes)
DEFINE_STREAMS(stream_split, v_block_s8, false, min_s8, dot_split)

static bool is_split(v_format format) {
  return format == V_FORMAT_S8B32 && v_signed_dot_now() == V_SIGNED_SPLIT;
}

uint32_t v_streams(v_format format, uint32_t rows, bool wide) {
  const uint32_t lanes = wide ? rows * V_WIDE_LANES : rows;
  const uint32_t most = is_split(format) ? MOST_PANELS / 2 : MOST_PANELS;
  return lanes <= 2 ? most / lanes : 0;
}

/* One of the tiles that v_streams allows. */
#define DISPATCH(name, most, ...)                                                                 \
  if (wide && V_WIDE_LANES > 1) {                                                                 \
    name(1, true, (most) / 2, __VA_ARGS__);                                                       \
  } else if (rows == 1) {                                                                         \
    name(1, false, most, __VA_ARGS__);                                                            \
  } else {                                                                                        \
    name(2, false, (most) / 2, __VA_ARGS__);                                                      \
  }

void v_linear_streams(v_format format, const v_activation_block *x, uint32_t rows, bool wide,
                      const uint8_t *panel, size_t bytes, uint32_t blocks, float *out,
                      size_t row_stride, size_t panel_stride) {
  if (format == V_FORMAT_I4B32) {
    DISPATCH(stream_i4, MOST_PANELS, x, panel, bytes, blocks, out, row_stride, panel_stride)
  } else if (format == V_FORMAT_I8B32) {
    DISPATCH(stream_i8, MOST_PANELS, x, panel, bytes, blocks, out, row_stride, panel_stride)
  } else if (!is_split(format)) {
    DISPATCH(stream_s8, MOST_PANELS, x, panel, bytes, blocks, out, row_stride, panel_stride)
  } else {
    DISPATCH(stream_split, MOST_PANELS / 2, x, panel, bytes, blocks, out, row_stride, panel_stride)
  }
}
