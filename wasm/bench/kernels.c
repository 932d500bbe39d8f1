/* The micro-kernels alone, on a 256 x 384 x 384 product whose operands stay in the second
 * cache, next to the bare dot-product loop that bounds what the block formats can reach. */
#include "kernels/linear/block_dot.h"
#include "math/activation.h"
#include "plan/memory.h"

#define M 256
#define N 384
#define K 384
#define BLOCKS (K / V_BLOCK)

typedef enum { BARE_DOT, I8B32, I4B32, F32 } bench_kernel;

#define TILES (V_MOST_ROWS / V_TILE_ROWS)

static v_activation_block *activations; /* [M / V_MOST_ROWS][BLOCKS][TILES] */
static v_block_i8 *i8;
static v_block_i4 *i4;
static float *f32, *rows, *out; /* rows: taken as [M / 4][K][4] by the f32 kernel */
static uint32_t state = 1;

static uint32_t next(void) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}
static float uniform(void) { return (float)(next() % 2001) / 1000.0f - 1.0f; }

V_EXPORT(v_bench_quantize) void v_bench_quantize(void) {
  const v_quantization how = {.has_min = true};
  for (uint32_t r = 0; r < M; r++) {
    v_activation_block *panel = activations + r / V_MOST_ROWS * BLOCKS * TILES;
    v_quantize_row(panel + r % V_MOST_ROWS / V_TILE_ROWS, TILES, r % V_TILE_ROWS, rows + r * K, K,
                   how);
  }
}

V_EXPORT(v_bench_prepare) void v_bench_prepare(void) {
  activations = v_heap_alloc(M / V_TILE_ROWS * BLOCKS * sizeof *activations);
  i8 = v_heap_alloc(N / V_PANEL * BLOCKS * sizeof *i8);
  i4 = v_heap_alloc(N / V_PANEL * BLOCKS * sizeof *i4);
  f32 = v_heap_alloc(N * K * sizeof(float));
  rows = v_heap_alloc(M * K * sizeof(float));
  out = v_heap_alloc(M * N * sizeof(float));
  for (uint32_t i = 0; i < M * K; i++) rows[i] = uniform();
  for (uint32_t i = 0; i < N * K; i++) f32[i] = uniform();
  v_bench_quantize();
  for (uint32_t b = 0; b < N / V_PANEL * BLOCKS; b++) {
    for (uint32_t i = 0; i < sizeof i8->codes; i++) i8[b].codes[i] = next() & 127;
    for (uint32_t i = 0; i < sizeof i4->codes; i++) i4[b].codes[i] = next() & 255;
    for (uint32_t c = 0; c < V_PANEL; c++) {
      i8[b].scale[c] = i4[b].scale[c] = 0x211f; /* about 0.01 in f16 */
      i8[b].min[c] = i4[b].min[c] = 0xac00;     /* -1/16 */
    }
  }
}

/* 4 x 8, nothing but loads and dot products. */
static V_NOINLINE void bare_dot_tile(const v_activation_block *x, const v_block_i8 *w, float *to) {
  v_columns dot[V_TILE_ROWS];
  V_UNROLL for (uint32_t r = 0; r < V_TILE_ROWS; r++) dot[r] = v_zero_columns();
  for (uint32_t b = 0; b < BLOCKS; b++, w++, x += TILES) {
    const v_activation_group *a = x->codes;
    const uint8_t *p = w->codes;
    V_KEEP_LOOP for (uint32_t g = 0; g < V_BLOCK / V_GROUP; g++, a++, p += V_GROUP_BYTES) {
      V_BASE(a);
      V_BASE(p);
      const v_columns codes = v_load_group(p);
      V_UNROLL for (uint32_t r = 0; r < V_TILE_ROWS; r++) v_dot_group(&dot[r], (*a)[r], codes);
    }
  }
  V_UNROLL for (uint32_t r = 0; r < V_TILE_ROWS; r++) v_store_columns(to + r * N, dot[r]);
}

/* The whole product once: weights panel by panel, as the linear op walks them. */
V_EXPORT(v_bench_kernel) void v_bench_kernel(uint32_t kernel) {
  for (uint32_t m = 0; m < M; m += V_MOST_ROWS) {
    const v_activation_block *x = activations + m * TILES / V_MOST_ROWS * BLOCKS;
    for (uint32_t n = 0; n < N; n += V_PANEL) {
      const uint32_t panel = n / V_PANEL * BLOCKS;
      const v_tile_out to = {.out = out + m * N + n, .stride = N};
      if (kernel == I8B32) {
        const v_panels one = {.first = i8[panel].codes, .count = 1};
        v_linear_blocks(V_FORMAT_I8B32, x, V_MOST_ROWS, false, &one, BLOCKS, &to);
      } else if (kernel == I4B32) {
        const v_panels one = {.first = i4[panel].codes, .count = 1};
        v_linear_blocks(V_FORMAT_I4B32, x, V_MOST_ROWS, false, &one, BLOCKS, &to);
      } else {
        for (uint32_t r = 0; r < V_MOST_ROWS; r += V_TILE_ROWS) {
          const v_tile_out tile = {.out = to.out + r * N, .stride = N};
          if (kernel == BARE_DOT) {
            bare_dot_tile(x + r / V_TILE_ROWS, i8 + panel, tile.out);
          } else {
            v_linear_f32_4x8(rows + (m + r) * K, V_TILE_ROWS, f32 + n * K, K, &tile);
          }
        }
      }
    }
  }
}

/* An activation over the M x N results. */
V_EXPORT(v_bench_activation) void v_bench_activation(uint32_t kind) {
  for (uint32_t i = 0; i < M; i++) v_activate((v_activation)kind, rows + i * K, out + i * N, K);
}
