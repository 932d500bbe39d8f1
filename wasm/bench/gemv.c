/* Few rows: the weights of a large layer stream from memory once, next to a loop that does
 * nothing but read the same bytes. */
#include "kernels/linear/few_rows.h"
#include "plan/memory.h"

#define K 576
#define BLOCKS (K / V_BLOCK)
#define BYTES (48u << 20) /* of weights; no cache holds them */

#define READ 0
static const v_format FORMATS[] = {0, V_FORMAT_I4B32, V_FORMAT_I8B32, V_FORMAT_S8B32};

static uint8_t *weights;
static v_activation_block *activations; /* [2][BLOCKS]: 8-bit codes, then 16-bit ones */
static float *result;                   /* [4][32] */
static uint32_t state = 1;

V_EXPORT(v_bench_gemv_prepare) void v_bench_gemv_prepare(void) {
  weights = v_heap_alloc(BYTES);
  activations = v_heap_alloc(2 * BLOCKS * sizeof *activations);
  result = v_heap_alloc(V_LANES * V_MAX_PANELS * V_PANEL * sizeof(float));
  for (uint32_t i = 0; i < BYTES / 4; i++) {
    state = state * 1664525u + 1013904223u;
    ((uint32_t *)(void *)weights)[i] =
        (state & 0x07ff07ffu) | 0x20002000u; /* any two bytes are a tame f16 */
  }
  float x[K];
  for (uint32_t r = 0; r < V_LANES; r++) {
    for (uint32_t i = 0; i < K; i++) {
      state = state * 1664525u + 1013904223u;
      x[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
    }
    v_quantize_row(activations, r, x, K, false);
    if (r < v_tile_rows(true)) v_quantize_row(activations + BLOCKS, r, x, K, true);
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
  const size_t bytes = (size_t)v_panel_bytes(FORMATS[kind], K);
  const uint32_t panels = (uint32_t)(BYTES / bytes);
  const v_activation_block *x = activations + (wide ? BLOCKS : 0);
  const v_format format = FORMATS[kind];
  const uint32_t streams = v_few_panels(format, rows, wide), each = panels / streams;
  for (uint32_t p = 0; p < each; p++) {
    const uint8_t *panel = weights + p * bytes;
    switch (format) {
      case V_FORMAT_I4B32:
        v_linear_i4b32_few(x, rows, wide, panel, each * bytes, streams, BLOCKS, result, 32, 8);
        break;
      case V_FORMAT_I8B32:
        v_linear_i8b32_few(x, rows, wide, panel, each * bytes, streams, BLOCKS, result, 32, 8);
        break;
      default:
        v_linear_s8b32_few(x, rows, wide, panel, each * bytes, streams, BLOCKS, result, 32, 8);
    }
  }
  return (uint32_t)(each * streams * bytes);
}
