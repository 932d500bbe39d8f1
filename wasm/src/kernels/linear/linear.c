/* out = activation(x[:, x_offset : x_offset + K] @ weight.T + bias) + residual.
 *
 * A tile of the executor is a row panel (up to 32 rows) by a run of columns. The thread
 * brings the row panel into the micro-kernels' form in its scratch once and keeps it
 * while it works on that panel. The micro-kernels add bias and residual and write to out,
 * which is safe when out is the residual. With an activation, and in a last, partial
 * column panel, they fill a small buffer in the first cache instead, 64 columns at a time,
 * and a second pass takes its rows to out. So do those of linear_streams.c, which take one
 * or two rows of block formats. */
#include "kernels/kernels.h"
#include "kernels/linear/signed_dot.h"
#include "kernels/linear/tiles.h"
#include "math/activation.h"
#include "math/exponential.h"

#define PANEL_ROWS V_MOST_ROWS
#define CHUNK_COLUMNS 64
#define MOST_RUNS 4

typedef struct {
  float *results;             /* [PANEL_ROWS][CHUNK_COLUMNS] */
  float *widened;             /* f16: one column panel in f32 */
  v_activation_block *blocks; /* block formats: [blocks][tiles of rows] */
  bool wide;                  /* 16-bit activations */
  float *rows;                /* f32, f16: [PANEL_ROWS / 4][k][4] */
} v_linear_scratch_parts;

static bool is_wide(const v_op_record *op) { return op->uints[V_LINEAR_ACTIVATION_BITS] == 16; }

uint64_t v_linear_scratch(const v_program *p, const v_op_record *op) {
  const v_tensor_record *w = &p->tensors[op->tensors[V_LINEAR_WEIGHT]];
  const uint64_t k = w->shape[1], blocks = v_ceil_div(w->shape[1], V_BLOCK);
  const uint64_t results = PANEL_ROWS * CHUNK_COLUMNS * sizeof(float);
  if (v_is_block_format((v_format)w->format)) {
    const uint64_t tiles = PANEL_ROWS / v_tile_rows(is_wide(op));
    return results + blocks * tiles * sizeof(v_activation_block);
  }
  return results + k * sizeof(float) * (PANEL_ROWS + V_PANEL);
}

static v_linear_scratch_parts scratch_parts(const v_task *t, const v_weight *w) {
  v_linear_scratch_parts s = {0};
  s.wide = is_wide(t->op);
  s.results = (float *)(void *)t->scratch;
  float *rest = s.results + PANEL_ROWS * CHUNK_COLUMNS;
  if (v_is_block_format(w->format)) {
    s.blocks = (v_activation_block *)(void *)rest;
  } else {
    s.widened = rest;
    s.rows = rest + (size_t)w->cols * V_PANEL;
  }
  return s;
}

/* Rows x of the row panel as the micro-kernels of the block formats read them. */
static void quantize_rows(const v_linear_scratch_parts *s, const v_weight *w, const float *x,
                          size_t x_stride, uint32_t rows) {
  const v_quantization how = {
      .wide = s->wide, .has_min = v_has_min(w->format), .excess = v_signed_flip()};
  const uint32_t step = v_tile_rows(s->wide), tiles = v_ceil_div(rows, step);
  for (uint32_t r = 0; r < tiles * step; r++, x += x_stride) {
    v_activation_block *tile = s->blocks + r / step;
    if (r < rows) {
      v_quantize_row(tile, tiles, r % step, x, w->cols, how);
    } else {
      v_clear_row(tile, tiles, r % step, w->cols);
    }
  }
}

/* The same for the others: four rows side by side. */
static void transpose_rows(const v_linear_scratch_parts *s, const v_weight *w, const float *x,
                           size_t x_stride, uint32_t rows) {
  for (uint32_t r = 0; r < rows; r++, x += x_stride) {
    const uint32_t tile = r / V_TILE_ROWS, lane = r % V_TILE_ROWS;
    float *to = s->rows + (size_t)tile * w->cols * V_TILE_ROWS + lane;
    for (uint32_t i = 0; i < w->cols; i++) to[i * V_TILE_ROWS] = x[i];
  }
}

/* Columns in a tile: all of them when there are rows enough for every thread, else a
 * multiple of the chunk that gives each thread a few tiles. */
static uint32_t tile_columns(const v_task *t) {
  const uint32_t width = v_width(t, t->op->out);
  const uint32_t panels = v_ceil_div(v_out_rows(t), PANEL_ROWS);
  if (t->ranks == 1 || panels >= 4 * t->ranks || panels == 0) return width;
  const uint32_t parts = v_ceil_div(4 * t->ranks, panels);
  return v_ceil_div(v_ceil_div(width, parts), CHUNK_COLUMNS) * CHUNK_COLUMNS;
}

uint32_t v_linear_tiles(const v_task *t) {
  return v_ceil_div(v_out_rows(t), PANEL_ROWS) *
         v_ceil_div(v_width(t, t->op->out), tile_columns(t));
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
  for (uint32_t r = 0; r < rows; r += V_TILE_ROWS) {
    v_linear_f32_4x8(s->rows + (size_t)r * w->cols, rows - r, weights, w->cols, &to);
    to.out += V_TILE_ROWS * to.stride;
    if (to.residual) to.residual += V_TILE_ROWS * to.stride;
  }
}

/* Columns of one row panel, and what becomes of its products. */
typedef struct {
  const v_weight *w;
  const v_linear_scratch_parts *s;
  uint32_t rows, width;
  uint32_t first, end; /* columns */
  v_activation activation;
  const float *bias;     /* [width] or NULL */
  const float *residual; /* the row panel's first row, or NULL */
  float *out;            /* the same */
} v_linear_tile;

/* The product of the row panel and the 8 columns from `column` on; of block formats also
 * those of the 8 columns `apart` columns further on, and so on, `count` times. */
static void multiply_panels(const v_linear_tile *k, uint32_t column, uint32_t count, uint32_t apart,
                            v_tile_out to) {
  const v_panels panels = {.first = k->w->data + column / V_PANEL * k->w->panel_bytes,
                           .apart = (size_t)(apart / V_PANEL * k->w->panel_bytes),
                           .count = count,
                           .columns = apart};
  if (v_is_block_format(k->w->format)) {
    v_linear_blocks(k->w->format, k->s->blocks, k->rows, k->s->wide, &panels,
                    v_ceil_div(k->w->cols, V_BLOCK), &to);
  } else {
    panel_f32(k->s, k->w, panels.first, k->rows, to);
  }
}

/* Takes `columns` columns from `first` on from a buffer to out: activation and residual.
 * bias: of the first column, where the buffer is still without it, or NULL. */
static void finish(const v_linear_tile *k, float *results, uint32_t first, uint32_t columns,
                   const float *bias) {
  for (uint32_t r = 0; r < k->rows; r++) {
    float *x = results + r * CHUNK_COLUMNS;
    const size_t at = (size_t)r * k->width + first;
    if (bias) {
      V_FOR_COLUMNS(i, lanes, columns) {
        v_store(x + i, v_add(v_load(x + i), v_at(bias + i, lanes)));
      }
    }
    if (!k->residual) {
      v_activate(k->activation, x, k->out + at, columns);
      continue;
    }
    if (k->activation != V_ACTIVATION_NONE) v_activate(k->activation, x, x, columns);
    V_FOR_COLUMNS(i, lanes, columns) {
      v_put(k->out + at + i, v_add(v_load(x + i), v_at(k->residual + at + i, lanes)), lanes);
    }
  }
}

/* `count` runs of whole panels without an activation, `columns` columns each: straight to
 * out. */
static void write_columns(const v_linear_tile *k, uint32_t first, uint32_t count,
                          uint32_t columns) {
  for (uint32_t c = first; c < first + columns; c += V_PANEL) {
    const v_tile_out to = {.out = k->out + c,
                           .residual = k->residual ? k->residual + c : NULL,
                           .stride = k->width,
                           .bias = k->bias ? k->bias + c : NULL};
    multiply_panels(k, c, count, columns, to);
  }
}

/* Up to 64 columns by way of the buffer. */
static void buffer_columns(const v_linear_tile *k, uint32_t first, uint32_t columns) {
  float bias[CHUNK_COLUMNS];
  if (k->bias) {
    v_copy_floats(bias, k->bias + first, columns);
    v_zero_floats(bias + columns, (uint32_t)v_round_up(columns, V_PANEL) - columns);
  }
  for (uint32_t c = 0; c < columns; c += V_PANEL) {
    const v_tile_out to = {
        .out = k->s->results + c, .stride = CHUNK_COLUMNS, .bias = k->bias ? bias + c : NULL};
    multiply_panels(k, first + c, 1, 0, to);
  }
  finish(k, k->s->results, first, columns, NULL);
}

/* Runs of panels that v_linear_blocks takes side by side: as many as there is room for. */
static uint32_t side_by_side(const v_linear_tile *k) {
  if (!v_is_block_format(k->w->format)) return 1;
  return v_min_u32(MOST_RUNS, V_MOST_ROWS / (uint32_t)v_round_up(k->rows, V_LANES));
}

/* Columns from `first` on. */
static void run_columns(const v_linear_tile *k, uint32_t first) {
  uint32_t c = first;
  if (k->activation == V_ACTIVATION_NONE) {
    const uint32_t count = side_by_side(k), each = (k->end - c) / V_PANEL / count * V_PANEL;
    write_columns(k, c, count, each);
    c += count * each;
    const uint32_t whole = (k->end - c) / V_PANEL * V_PANEL;
    write_columns(k, c, 1, whole);
    c += whole;
  }
  for (; c < k->end; c += CHUNK_COLUMNS) {
    buffer_columns(k, c, v_min_u32(CHUNK_COLUMNS, k->end - c));
  }
}

/* `streams` runs of `each` panels, side by side from the first column on: 64 columns of each
 * at a time. */
static void run_streams(const v_linear_tile *k, uint32_t streams, uint32_t each) {
  const uint32_t most = CHUNK_COLUMNS / V_PANEL, blocks = v_ceil_div(k->w->cols, V_BLOCK);
  const size_t apart = (size_t)(each * k->w->panel_bytes);
  const size_t buffer = (size_t)k->rows * CHUNK_COLUMNS; /* of a stream */
  const uint8_t *panel = k->w->data + k->first / V_PANEL * k->w->panel_bytes;
  for (uint32_t p = 0; p < each; p += most) {
    const uint32_t n = v_min_u32(most, each - p);
    for (uint32_t i = 0; i < n; i++, panel += k->w->panel_bytes) {
      v_linear_streams(k->w->format, k->s->blocks, k->rows, k->s->wide, panel, apart, blocks,
                       k->s->results + i * V_PANEL, CHUNK_COLUMNS, buffer);
    }
    for (uint32_t j = 0; j < streams; j++) {
      const uint32_t first = k->first + (p + j * each) * V_PANEL;
      finish(k, k->s->results + j * buffer, first, n * V_PANEL, k->bias ? k->bias + first : NULL);
    }
  }
}

static void run(const v_linear_tile *k) {
  uint32_t first = k->first;
  const bool block_format = v_is_block_format(k->w->format);
  const uint32_t streams = block_format ? v_streams(k->w->format, k->rows, k->s->wide) : 0;
  if (streams) {
    const uint32_t each = (k->end - first) / V_PANEL / streams;
    run_streams(k, streams, each);
    first += streams * each * V_PANEL;
  }
  run_columns(k, first);
}

void v_linear_run(v_task *t, uint32_t tile) {
  const v_op_record *op = t->op;
  const v_weight *w = v_tensor(t, V_LINEAR_WEIGHT);
  const v_linear_scratch_parts s = scratch_parts(t, w);
  const uint32_t width = v_width(t, op->out), columns = tile_columns(t);
  const uint32_t runs = v_ceil_div(width, columns), panel = tile / runs;
  const uint32_t first = tile % runs * columns;
  const uint32_t row0 = panel * PANEL_ROWS;
  const size_t out_at = (size_t)row0 * width;
  const v_linear_tile k = {
      .w = w,
      .s = &s,
      .rows = v_min_u32(PANEL_ROWS, v_out_rows(t) - row0),
      .width = width,
      .first = first,
      .end = v_min_u32(first + columns, width),
      .activation = (v_activation)op->uints[V_LINEAR_ACTIVATION],
      .bias = v_vector(t, V_LINEAR_BIAS),
      .residual = op->ins[V_LINEAR_RESIDUAL] >= 0 ? v_in(t, V_LINEAR_RESIDUAL) + out_at : NULL,
      .out = v_slot(t, op->out) + out_at,
  };
  const size_t x_stride = v_width(t, op->ins[V_LINEAR_X]);
  const float *x = v_in(t, V_LINEAR_X) + row0 * x_stride + op->uints[V_LINEAR_X_OFFSET];
  if (t->prepared != panel + 1) {
    if (v_is_block_format(w->format)) {
      quantize_rows(&s, w, x, x_stride, k.rows);
    } else {
      transpose_rows(&s, w, x, x_stride, k.rows);
    }
    t->prepared = panel + 1;
  }
  run(&k);
}
