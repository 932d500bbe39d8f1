/* out = activation(x[:, x_offset : x_offset + K] @ weight.T + bias) + residual.
 *
 * A tile of the executor is a row panel (up to 32 rows) by a run of columns. The thread
 * brings the row panel into the micro-kernels' form in its scratch once and keeps it
 * while it works on that panel. The micro-kernels add bias and residual and write to out,
 * which is safe when out is the residual. With an activation, and in a last, partial
 * column panel, they fill a small buffer in the first cache instead, 64 columns at a time,
 * and a second pass takes its rows to out. */
#include "kernels/kernels.h"
#include "kernels/linear/tiles.h"
#include "math/activation.h"
#include "math/exponential.h"

#define PANEL_ROWS 32
#define CHUNK_COLUMNS 64

typedef struct {
  float *results;             /* [PANEL_ROWS][CHUNK_COLUMNS] */
  float *widened;             /* f16: one column panel in f32 */
  v_block_scales *scales;     /* block formats: one column panel's scales in f32 */
  v_activation_block *blocks; /* block formats: [PANEL_ROWS / 4][blocks] */
  float *rows;                /* f32, f16: [PANEL_ROWS / 4][k][4] */
} v_linear_scratch_parts;

static bool is_block_format(v_format format) {
  return format == V_FORMAT_I8B32 || format == V_FORMAT_I4B32;
}

uint64_t v_linear_scratch(const v_program *p, const v_op_record *op) {
  const v_tensor_record *w = &p->tensors[op->tensors[V_LINEAR_WEIGHT]];
  const uint64_t k = w->shape[1], blocks = v_ceil_div(w->shape[1], V_BLOCK);
  const uint64_t results = PANEL_ROWS * CHUNK_COLUMNS * sizeof(float);
  if (is_block_format((v_format)w->format)) {
    return results + blocks * (sizeof(v_block_scales) +
                               PANEL_ROWS / V_TILE_ROWS * sizeof(v_activation_block));
  }
  return results + k * sizeof(float) * (PANEL_ROWS + V_PANEL);
}

static v_linear_scratch_parts scratch_parts(const v_task *t, const v_weight *w) {
  v_linear_scratch_parts s = {0};
  s.results = (float *)(void *)t->scratch;
  float *rest = s.results + PANEL_ROWS * CHUNK_COLUMNS;
  if (is_block_format(w->format)) {
    s.scales = (v_block_scales *)(void *)rest;
    s.blocks = (v_activation_block *)(void *)(s.scales + v_ceil_div(w->cols, V_BLOCK));
  } else {
    s.widened = rest;
    s.rows = rest + (size_t)w->cols * V_PANEL;
  }
  return s;
}

/* Rows x of the row panel as the micro-kernels read them. */
static void prepare_rows(const v_linear_scratch_parts *s, const v_weight *w, const float *x,
                         size_t x_stride, uint32_t rows) {
  const uint32_t blocks = v_ceil_div(w->cols, V_BLOCK);
  for (uint32_t r = 0; r < rows; r++, x += x_stride) {
    const uint32_t tile = r / V_TILE_ROWS, lane = r % V_TILE_ROWS;
    if (is_block_format(w->format)) {
      v_quantize_row(s->blocks + tile * blocks, lane, x, w->cols);
    } else {
      float *to = s->rows + (size_t)tile * w->cols * V_TILE_ROWS + lane;
      for (uint32_t i = 0; i < w->cols; i++) to[i * V_TILE_ROWS] = x[i];
    }
  }
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

/* The next four rows. */
static void next_tile(v_tile_out *to) {
  to->out += V_TILE_ROWS * to->stride;
  if (to->residual) to->residual += V_TILE_ROWS * to->stride;
}

static void panel_i8b32(const v_linear_scratch_parts *s, const v_weight *w, const uint8_t *panel,
                        uint32_t rows, v_tile_out to) {
  const uint32_t blocks = v_ceil_div(w->cols, V_BLOCK);
  const v_block_i8 *weights = (const v_block_i8 *)(const void *)panel;
  v_widen_scales_i8(s->scales, weights, blocks);
  for (uint32_t r = 0; r < rows; r += V_TILE_ROWS, next_tile(&to)) {
    v_linear_i8b32_4x8(s->blocks + r / V_TILE_ROWS * blocks, rows - r, weights, s->scales, blocks,
                       &to);
  }
}

static void panel_i4b32(const v_linear_scratch_parts *s, const v_weight *w, const uint8_t *panel,
                        uint32_t rows, v_tile_out to) {
  const uint32_t blocks = v_ceil_div(w->cols, V_BLOCK);
  const v_block_i4 *weights = (const v_block_i4 *)(const void *)panel;
  v_widen_scales_i4(s->scales, weights, blocks);
  for (uint32_t r = 0; r < rows; r += V_TILE_ROWS, next_tile(&to)) {
    v_linear_i4b32_4x8(s->blocks + r / V_TILE_ROWS * blocks, rows - r, weights, s->scales, blocks,
                       &to);
  }
}

static void panel_f32(const v_linear_scratch_parts *s, const v_weight *w, const uint8_t *panel,
                      uint32_t rows, v_tile_out to) {
  const float *weights = (const float *)(const void *)panel;
  if (w->format == V_FORMAT_F16) {
    for (uint32_t i = 0; i < w->cols * V_PANEL; i += 4) {
      v_store(s->widened + i, v_f16x4_to_f32x4(panel + 2 * (size_t)i));
    }
    weights = s->widened;
  }
  for (uint32_t r = 0; r < rows; r += V_TILE_ROWS, next_tile(&to)) {
    v_linear_f32_4x8(s->rows + (size_t)r * w->cols, rows - r, weights, w->cols, &to);
  }
}

/* The product of the row panel and the 8 columns from `column` on. */
static void multiply_panel(const v_linear_scratch_parts *s, const v_weight *w, uint32_t rows,
                           uint32_t column, v_tile_out to) {
  const uint8_t *panel = w->data + column / V_PANEL * w->panel_bytes;
  switch (w->format) {
    case V_FORMAT_I8B32: panel_i8b32(s, w, panel, rows, to); break;
    case V_FORMAT_I4B32: panel_i4b32(s, w, panel, rows, to); break;
    default: panel_f32(s, w, panel, rows, to);
  }
}

/* What becomes of a row panel's products. */
typedef struct {
  v_activation activation;
  uint32_t width;
  const float *bias;     /* [width] or NULL */
  const float *residual; /* the row panel's first row, or NULL */
  float *out;            /* the same */
} v_linear_output;

/* Columns first .. first + columns - 1 of the row panel, a multiple of 8 without an
 * activation: straight to out. */
static void write_columns(const v_linear_scratch_parts *s, const v_weight *w, uint32_t rows,
                          const v_linear_output *o, uint32_t first, uint32_t columns) {
  for (uint32_t c = first; c < first + columns; c += V_PANEL) {
    const v_tile_out to = {.out = o->out + c,
                           .residual = o->residual ? o->residual + c : NULL,
                           .stride = o->width,
                           .bias = o->bias ? o->bias + c : NULL};
    multiply_panel(s, w, rows, c, to);
  }
}

/* Up to 64 columns by way of the buffer. */
static void buffer_columns(const v_linear_scratch_parts *s, const v_weight *w, uint32_t rows,
                           const v_linear_output *o, uint32_t first, uint32_t columns) {
  float bias[CHUNK_COLUMNS];
  if (o->bias) {
    v_copy_floats(bias, o->bias + first, columns);
    v_zero_floats(bias + columns, (uint32_t)v_round_up(columns, V_PANEL) - columns);
  }
  for (uint32_t c = 0; c < columns; c += V_PANEL) {
    const v_tile_out to = {
        .out = s->results + c, .stride = CHUNK_COLUMNS, .bias = o->bias ? bias + c : NULL};
    multiply_panel(s, w, rows, first + c, to);
  }
  for (uint32_t r = 0; r < rows; r++) {
    float *x = s->results + r * CHUNK_COLUMNS;
    const size_t at = (size_t)r * o->width + first;
    if (!o->residual) {
      v_activate(o->activation, x, o->out + at, columns);
      continue;
    }
    v_activate(o->activation, x, x, columns);
    V_FOR_COLUMNS(i, lanes, columns) {
      v_put(o->out + at + i, v_add(v_load(x + i), v_at(o->residual + at + i, lanes)), lanes);
    }
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
  if (t->prepared != panel + 1) {
    prepare_rows(&s, w, x, x_stride, rows);
    t->prepared = panel + 1;
  }
  const size_t at = (size_t)row0 * width;
  const v_linear_output o = {
      .activation = (v_activation)op->uints[V_LINEAR_ACTIVATION],
      .width = width,
      .bias = v_vector(t, V_LINEAR_BIAS),
      .residual = op->ins[V_LINEAR_RESIDUAL] >= 0 ? v_in(t, V_LINEAR_RESIDUAL) + at : NULL,
      .out = v_slot(t, op->out) + at,
  };
  const uint32_t end = v_min_u32((tile % runs + 1) * run, width);
  uint32_t c = tile % runs * run;
  if (o.activation == V_ACTIVATION_NONE) {
    const uint32_t whole = (end - c) / V_PANEL * V_PANEL;
    write_columns(&s, w, rows, &o, c, whole);
    c += whole;
  }
  for (; c < end; c += CHUNK_COLUMNS) {
    buffer_columns(&s, w, rows, &o, c, v_min_u32(CHUNK_COLUMNS, end - c));
  }
}
