#include "kernels/sample/sample.h"
#include "math/exponential.h"
#include "math/logarithm.h"

static void penalize(const v_sampling *s) {
  const v_sample_row *r = s->row;
  const uint32_t *entry = s->data + r->penalized_at;
  for (uint32_t i = 0; i < r->penalized_count; i++, entry += 3) {
    float l = s->logits[entry[0]];
    l = l > 0 ? l / r->repetition : l * r->repetition;
    if (entry[2]) {
      l = l - r->presence;
      l = l - r->frequency * (float)entry[2];
    }
    s->logits[entry[0]] = l;
  }
}

static void add_bias(const v_sampling *s) {
  const uint32_t *entry = s->data + s->row->bias_at;
  for (uint32_t i = 0; i < s->row->bias_count; i++, entry += 2) {
    float bias;
    __builtin_memcpy(&bias, entry + 1, sizeof bias);
    s->logits[entry[0]] += bias;
  }
}

static void apply_mask(const v_sampling *s) {
  const v128_t bits = wasm_i32x4_const(1, 2, 4, 8);
  const v128_t out = V_F32(-__builtin_inff());
  V_FOR_COLUMNS(i, lanes, s->vocabulary) {
    const int32_t four = (int32_t)(s->mask[i / 32] >> (i % 32));
    const v128_t allowed = wasm_i32x4_eq(wasm_v128_and(wasm_i32x4_splat(four), bits), bits);
    v_put(s->logits + i, v_select(v_at(s->logits + i, lanes), out, allowed), lanes);
  }
}

/* Four vectors at a time: one chain of maxima would be all latency. */
static float most(const float *x, uint32_t n) {
  v128_t m[4];
  V_UNROLL for (uint32_t u = 0; u < 4; u++) m[u] = V_F32(-__builtin_inff());
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    V_UNROLL for (uint32_t u = 0; u < 4; u++) m[u] = wasm_f32x4_pmax(m[u], v_load(x + i + 4 * u));
  }
  v128_t all = wasm_f32x4_pmax(wasm_f32x4_pmax(m[0], m[1]), wasm_f32x4_pmax(m[2], m[3]));
  all = wasm_f32x4_pmax(all, wasm_i32x4_shuffle(all, all, 2, 3, 0, 1));
  all = wasm_f32x4_pmax(all, wasm_i32x4_shuffle(all, all, 1, 0, 3, 2));
  float top = wasm_f32x4_extract_lane(all, 0);
  for (; i < n; i++) top = x[i] > top ? x[i] : top;
  return top;
}

void v_adjust_logits(v_sampling *s) {
  penalize(s);
  add_bias(s);
  if (s->mask) apply_mask(s);
  s->max = most(s->logits, s->vocabulary);
}

/* Exponentials at a time: sums beside them would not stay in registers. */
#define EXPONENTIALS 64

V_INLINE void add_halves(v128_t *low, v128_t *high, v128_t e) {
  *low = wasm_f64x2_add(*low, wasm_f64x2_promote_low_f32x4(e));
  *high = wasm_f64x2_add(*high, wasm_f64x2_promote_low_f32x4(wasm_i32x4_shuffle(e, e, 2, 3, 0, 1)));
}

double v_log_total(const v_sampling *s) {
  /* Two f64 sums per half of a vector, added in one fixed order. */
  v128_t low = wasm_f64x2_const_splat(0), high = low;
  const v128_t max = v_splat(s->max);
  uint32_t i = 0;
  for (; i + EXPONENTIALS <= s->vocabulary; i += EXPONENTIALS) {
    float e[EXPONENTIALS];
    for (uint32_t j = 0; j < EXPONENTIALS; j += 4) {
      v_store(e + j, v_exp_negative(v_sub(v_load(s->logits + i + j), max)));
    }
    for (uint32_t j = 0; j < EXPONENTIALS; j += 4) add_halves(&low, &high, v_load(e + j));
  }
  for (; i + 4 <= s->vocabulary; i += 4) {
    add_halves(&low, &high, v_exp_negative(v_sub(v_load(s->logits + i), max)));
  }
  const v128_t sums = wasm_f64x2_add(low, high);
  double total = wasm_f64x2_extract_lane(sums, 0) + wasm_f64x2_extract_lane(sums, 1);
  for (; i < s->vocabulary; i++) {
    total += wasm_f32x4_extract_lane(v_exp_negative(v_sub(v_splat(s->logits[i]), max)), 0);
  }
  return v_log(total);
}
