/* out = activation(x[:, x_offset : x_offset + K] @ weight.T + bias) + residual.
 *
 * A tile of the executor is a row panel (up to 32 rows) by a run of columns. The thread
 * quantizes the row panel into its scratch once and keeps it while it works on that
 * panel; then, 64 columns at a time, micro-kernels fill a small buffer in the first
 * cache, and one pass over it adds bias, activation and residual. The buffer also makes
 * it safe for out to be the residual. */
#include "kernels/kernels.h"
#include "kernels/linear/tiles.h"
#include "math/activation.h"
#include "math/exponential.h"

#define PANEL_ROWS 32
#define CHUNK_COLUMNS 64

typedef struct {
  float *results; /* [PANEL_ROWS][CHUNK_COLUMNS] */
  float *widened; /* f16: one column panel in f32 */
  v_quantized quantized;
} v_linear_scratch_parts;

static bool is_block_format(v_format format) {
  return format == V_FORMAT_I8B32 || format == V_FORMAT_I4B32;
}

uint64_t v_linear_scratch(const v_program *p, const v_op_record *op) {
  const v_tensor_record *w = &p->tensors[op->tensors[V_LINEAR_WEIGHT]];
  uint64_t bytes = PANEL_ROWS * CHUNK_COLUMNS * sizeof(float);
  if (w->format == V_FORMAT_F16) bytes += v_panel_bytes(V_FORMAT_F32, w->shape[1]);
  if (is_block_format((v_format)w->format)) {
    bytes += v_quantized_bytes(PANEL_ROWS, v_ceil_div(w->shape[1], V_BLOCK));
  }
  return bytes;
}

static v_linear_scratch_parts scratch_parts(const v_task *t, const v_weight *w) {
  v_linear_scratch_parts s = {0};
  s.results = (float *)(void *)t->scratch;
  float *rest = s.results + PANEL_ROWS * CHUNK_COLUMNS;
  s.widened = rest;
  s.quantized.blocks = v_ceil_div(w->cols, V_BLOCK);
  s.quantized.scale = rest;
  s.quantized.sum = rest + PANEL_ROWS * s.quantized.blocks;
  s.quantized.codes = (v_activation_code *)(void *)(s.quantized.sum + PANEL_ROWS * s.quantized.blocks);
  return s;
}

/* Columns in a tile: all of them when there are rows enough for every thread, else a
 * multiple of the chunk that gives each thread a few tiles. */
static uint32_t tile_columns(const v_task *t) {
  const uint32_t width = v_width(t, t->op->out);
  const uint32_t panels = v_ceil_div(v_out_rows(t), PANEL_ROWS);
  if (t->ranks == 1 || panels >= 4 * t->ranks) return width;
  const uint32_t parts = v_ceil_div(4 * t->ranks, panels);
  return v_ceil_div(v_ceil_div(width, parts), CHUNK_COLUMNS) * CHUNK_COLUMNS;
}

uint32_t v_linear_tiles(const v_task *t) {
  return v_ceil_div(v_out_rows(t), PANEL_ROWS) *
         v_ceil_div(v_width(t, t->op->out), tile_columns(t));
}

/* Fills results with rows x (up to 64) columns of the product, a multiple of 8. */
static void multiply(const v_task *t, const v_weight *w, const v_linear_scratch_parts *s,
                     const float *x, size_t x_stride, uint32_t rows, uint32_t first,
                     uint32_t columns) {
  for (uint32_t c = 0; c < columns; c += V_PANEL) {
    const uint8_t *panel = w->data + (first + c) / V_PANEL * w->panel_bytes;
    float *out = s->results + c;
    const float *values = (const float *)(const void *)panel;
    if (w->format == V_FORMAT_F16) {
      for (uint32_t i = 0; i < w->cols * V_PANEL; i += 4) {
        v_store(s->widened + i, v_f16x4_to_f32x4(panel + 2 * (size_t)i));
      }
      values = s->widened;
    }
    for (uint32_t r = 0; r < rows; r += V_TILE_ROWS, out += V_TILE_ROWS * CHUNK_COLUMNS) {
      const uint32_t n = v_min_u32(V_TILE_ROWS, rows - r);
      switch (w->format) {
        case V_FORMAT_I8B32:
          v_linear_i8b32_tile(&s->quantized, r, n, (const v_block_i8 *)(const void *)panel, out,
                              CHUNK_COLUMNS);
          break;
        case V_FORMAT_I4B32:
          v_linear_i4b32_tile(&s->quantized, r, n, (const v_block_i4 *)(const void *)panel, out,
                              CHUNK_COLUMNS);
          break;
        default:
          v_linear_f32_tile(x + r * x_stride, x_stride, n, values, w->cols, out, CHUNK_COLUMNS);
      }
    }
  }
  (void)t;
}

/* One row of the buffer: + bias, activation, + residual, store. */
static void finish_row(const v_task *t, float *x, const float *bias, const float *residual,
                       float *out, uint32_t n) {
  if (bias) {
    V_FOR_COLUMNS(i, lanes, n) { v_store(x + i, v_add(v_load(x + i), v_at(bias + i, lanes))); }
  }
  v_activate((v_activation)t->op->uints[V_LINEAR_ACTIVATION], x, n);
  if (residual) {
    V_FOR_COLUMNS(i, lanes, n) {
      v_put(out + i, v_add(v_load(x + i), v_at(residual + i, lanes)), lanes);
    }
  } else {
    v_copy(out, x, n * sizeof(float));
  }
}

void v_linear_run(v_task *t, uint32_t tile) {
  const v_op_record *op = t->op;
  const v_weight *w = v_tensor(t, V_LINEAR_WEIGHT);
  const v_linear_scratch_parts s = scratch_parts(t, w);
  const uint32_t width = v_width(t, op->out), run = tile_columns(t);
  const uint32_t runs = v_ceil_div(width, run), panel = tile / runs;
  const uint32_t row0 = panel * PANEL_ROWS;
  const uint32_t rows = v_min_u32(PANEL_ROWS, v_out_rows(t) - row0);
  const size_t x_stride = v_width(t, op->ins[V_LINEAR_X]);
  const float *x = v_in(t, V_LINEAR_X) + row0 * x_stride + op->uints[V_LINEAR_X_OFFSET];
  if (is_block_format(w->format) && t->prepared != panel + 1) {
    for (uint32_t r = 0; r < rows; r++) v_quantize_row(&s.quantized, r, x + r * x_stride, w->cols);
    t->prepared = panel + 1;
  }
  const float *bias = v_vector(t, V_LINEAR_BIAS);
  const bool has_residual = op->ins[V_LINEAR_RESIDUAL] >= 0;
  const uint32_t end = v_min_u32((tile % runs + 1) * run, width);
  for (uint32_t c = tile % runs * run; c < end; c += CHUNK_COLUMNS) {
    const uint32_t columns = v_min_u32(CHUNK_COLUMNS, end - c);
    multiply(t, w, &s, x, x_stride, rows, c, columns);
    for (uint32_t r = 0; r < rows; r++) {
      const size_t at = (size_t)(row0 + r) * width + c;
      finish_row(t, s.results + r * CHUNK_COLUMNS, bias ? bias + c : NULL,
                 has_residual ? v_in(t, V_LINEAR_RESIDUAL) + at : NULL, v_slot(t, op->out) + at,
                 columns);
    }
  }
}
