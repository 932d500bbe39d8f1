/* s = x + residual; out = norm(s) * gamma + beta, over groups of columns; or only of some
 * columns, in place. */
#include "kernels/kernels.h"
#include "math/exponential.h"

/* Sums over a row run in four vectors that are added in one fixed order: short chains
 * for accuracy as much as for speed. `term` maps the loaded v to what is summed. */
#define ROW_SUM(result, row, n, term)                                       \
  do {                                                                      \
    v128_t sums[4] = {V_F32(0), V_F32(0), V_F32(0), V_F32(0)};              \
    uint32_t i = 0;                                                         \
    for (; i + 16 <= (n); i += 16) {                                        \
      V_UNROLL for (uint32_t u = 0; u < 4; u++) {                           \
        const v128_t v = v_load((row) + i + 4 * u);                         \
        sums[u] = v_add(sums[u], term);                                     \
      }                                                                     \
    }                                                                       \
    for (; i < (n); i++) {                                                  \
      const v128_t v = v_splat((row)[i]);                                   \
      const v128_t one = wasm_f32x4_replace_lane(V_F32(0), 0,               \
                                                 wasm_f32x4_extract_lane(term, 0)); \
      sums[0] = v_add(sums[0], one);                                        \
    }                                                                       \
    result = v_sum_lanes(v_add(v_add(sums[0], sums[1]), v_add(sums[2], sums[3]))); \
  } while (0)

static void normalize_group(const float *s, float *out, uint32_t n, v_norm_mode mode, float eps,
                            const float *gamma, const float *beta) {
  float mean = 0, squares;
  if (mode == V_NORM_LAYER) {
    ROW_SUM(mean, s, n, v);
    mean /= (float)n;
  }
  const v128_t m = v_splat(mean);
  ROW_SUM(squares, s, n, v_mul(v_sub(v, m), v_sub(v, m)));
  const v128_t scale = v_splat(1.0f / __builtin_sqrtf(squares / (float)n + eps));
  V_FOR_COLUMNS(i, lanes, n) {
    v128_t y = v_mul(v_sub(v_at(s + i, lanes), m), scale);
    if (gamma) y = v_mul(y, v_at(gamma + i, lanes));
    if (beta) y = v_add(y, v_at(beta + i, lanes));
    v_put(out + i, y, lanes);
  }
}

void v_norm_run(v_task *t, uint32_t tile) {
  const v_op_record *op = t->op;
  const uint32_t width = v_width(t, op->out);
  const uint32_t columns = op->uints[V_NORM_COLUMNS] ? op->uints[V_NORM_COLUMNS] : width;
  const uint32_t group = op->uints[V_NORM_GROUP] ? op->uints[V_NORM_GROUP] : columns;
  const float *gamma = v_vector(t, V_NORM_GAMMA), *beta = v_vector(t, V_NORM_BETA);
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    const size_t at = (size_t)r * width + op->uints[V_NORM_OFFSET];
    const float *s = v_in(t, V_NORM_X) + at;
    float *out = v_slot(t, op->out) + at;
    if (op->ins[V_NORM_RESIDUAL] >= 0 || op->out2 >= 0) {
      const float *residual = op->ins[V_NORM_RESIDUAL] < 0 ? NULL : v_in(t, V_NORM_RESIDUAL) + at;
      /* Without out2 the sum lives in out, where it is normalized in place. */
      float *sum = op->out2 < 0 ? out : v_slot(t, op->out2) + at;
      V_FOR_COLUMNS(i, lanes, width) {
        v128_t x = v_at(s + i, lanes);
        if (residual) x = v_add(x, v_at(residual + i, lanes));
        v_put(sum + i, x, lanes);
      }
      s = sum;
    }
    for (uint32_t g = 0; g < columns; g += group) {
      normalize_group(s + g, out + g, group, (v_norm_mode)op->uints[V_NORM_MODE],
                      op->floats[V_NORM_EPS], gamma, beta);
    }
  }
}
