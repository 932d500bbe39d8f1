/* Few rows: the weights of a large layer stream from memory once, next to a loop that does
 * nothing but read the same bytes. */
#include "kernels/linear/block_dot.h"
#include "kernels/linear/signed_dot.h"
#include "plan/memory.h"

#define K 576
#define BLOCKS (K / V_BLOCK)
#define BYTES (48u << 20) /* of weights; no cache holds them */
#define MOST_ROWS 8

#define READ 0
static const v_format FORMATS[] = {0, V_FORMAT_I4B32, V_FORMAT_I8B32, V_FORMAT_S8B32};

static uint8_t *weights;
static v_activation_block *activations; /* [BLOCKS][tiles] */
static float *result;
static uint32_t state = 1;

static uint32_t next(void) { return state = state * 1664525u + 1013904223u; }

V_EXPORT(v_bench_gemv_prepare) void v_bench_gemv_prepare(void) {
  v_the_model.signed_dot = v_probe_signed_dot();
  weights = v_heap_alloc(BYTES);
  activations = v_heap_alloc(MOST_ROWS * BLOCKS * sizeof *activations);
  result = v_heap_alloc(V_MOST_ROWS * V_PANEL * sizeof(float));
  for (uint32_t i = 0; i < BYTES / 4; i++) {
    /* Any two bytes are a tame f16. */
    ((uint32_t *)(void *)weights)[i] = (next() & 0x07ff07ffu) | 0x20002000u;
  }
}

static void quantize(uint32_t rows, v_quantization how) {
  const uint32_t step = v_tile_rows(how.wide), tiles = v_ceil_div(rows, step);
  float x[K];
  for (uint32_t r = 0; r < tiles * step; r++) {
    for (uint32_t i = 0; i < K; i++) x[i] = (float)(next() >> 8) * 0x1p-23f - 1.0f;
    v_quantize_row(activations + r / step, tiles, r % step, x, K, how);
  }
}

static float read_all(void) {
  v128_t sums[4] = {wasm_i64x2_const_splat(0)};
  const uint8_t *p = weights;
  V_KEEP_LOOP for (uint32_t i = 0; i < BYTES; i += 64, p += 64) {
    V_BASE(p);
    V_UNROLL for (uint32_t j = 0; j < 4; j++) sums[j] = wasm_i64x2_add(sums[j], v_load(p + 16 * j));
  }
  const v128_t sum =
      wasm_i64x2_add(wasm_i64x2_add(sums[0], sums[1]), wasm_i64x2_add(sums[2], sums[3]));
  return v_sum_lanes(sum);
}

/* Reads all weights once, as a layer of K columns; returns how many bytes that were. */
V_EXPORT(v_bench_gemv) uint32_t v_bench_gemv(uint32_t kind, uint32_t rows, uint32_t wide) {
  if (kind == READ) {
    result[0] = read_all();
    return BYTES;
  }
  const v_format format = FORMATS[kind];
  const size_t bytes = (size_t)v_panel_bytes(format, K);
  const uint32_t panels = (uint32_t)(BYTES / bytes), streams = v_streams(format, rows, wide);
  quantize(rows, (v_quantization){wide, v_has_min(format), v_signed_flip()});
  if (streams == 0) {
    const uint32_t runs = V_MOST_ROWS / MOST_ROWS, each = panels / runs;
    const v_tile_out to = {.out = result, .stride = runs * V_PANEL};
    for (uint32_t p = 0; p < each; p++) {
      const v_panels of = {weights + p * bytes, each * bytes, runs, V_PANEL};
      v_linear_blocks(format, activations, rows, wide, &of, BLOCKS, &to);
    }
    return (uint32_t)(each * runs * bytes);
  }
  const uint32_t each = panels / streams;
  for (uint32_t p = 0; p < each; p++) {
    v_linear_streams(format, activations, rows, wide, weights + p * bytes, each * bytes, BLOCKS,
                     result, streams * V_PANEL, V_PANEL);
  }
  return (uint32_t)(each * streams * bytes);
}
