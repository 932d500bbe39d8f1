#include "kernels/sample/sample.h"
#include "math/exponential.h"

/* Weights are whole numbers of 2^-32, held in f64 as such, so sums are exact. */
#define WEIGHT_ONE 0x1p32

/* Where exp(x) rounds to no unit any more: below ln(2^-33) = -22.87. */
#define LOWEST_EXPONENT -24.0f

static uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

double v_uniform(uint64_t seed, uint32_t position) {
  const uint64_t golden = 0x9E3779B97F4A7C15u;
  return (double)(mix(mix(seed + golden) + ((uint64_t)position + 1) * golden) >> 11) * 0x1p-53;
}

/* Two weights from two exponentials in f32. */
static inline v128_t to_units(v128_t e) {
  return wasm_f64x2_nearest(
      wasm_f64x2_mul(wasm_f64x2_promote_low_f32x4(e), wasm_f64x2_const_splat(WEIGHT_ONE)));
}

static inline v128_t exponentials(const v_sampling *s, v128_t logits) {
  return v_exp_negative(v_div(v_sub(logits, v_splat(s->max)), v_splat(s->row->temperature)));
}

static double weight_of(const v_sampling *s, uint32_t id) {
  return wasm_f64x2_extract_lane(to_units(exponentials(s, v_splat(s->logits[id]))), 0);
}

/* The weights of all candidates; others have logit minus infinity, and weight 0. */
static double all_weights(const v_sampling *s) {
  v128_t sum = wasm_f64x2_const_splat(0);
  uint32_t i = 0;
  for (; i + 4 <= s->vocabulary; i += 4) {
    const v128_t e = exponentials(s, v_load(s->logits + i));
    sum = wasm_f64x2_add(
        sum, wasm_f64x2_add(to_units(e), to_units(wasm_i32x4_shuffle(e, e, 2, 3, 0, 1))));
  }
  double total = wasm_f64x2_extract_lane(sum, 0) + wasm_f64x2_extract_lane(sum, 1);
  for (; i < s->vocabulary; i++) total += weight_of(s, i);
  return total;
}

/* The weight of rank `rank` and its id; false past the end. Where every weight is 0, no
 * cut and no draw gets. */
static bool weight_of_rank(v_sampling *s, uint32_t rank, uint32_t *id, double *weight) {
  if (!v_ranked(s, rank, -LOWEST_EXPONENT * s->row->temperature, id)) return false;
  *weight = weight_of(s, *id);
  return true;
}

/* Step 6: how many ranks the cuts leave, and their weight in *left. */
static uint32_t cut(v_sampling *s, double *left) {
  const v_sample_row *r = s->row;
  const uint32_t end = r->top_k ? r->top_k : UINT32_MAX;
  uint32_t id;
  double weight, total = 0;
  if (r->top_k) {
    for (uint32_t i = 0; i < end && weight_of_rank(s, i, &id, &weight); i++) total += weight;
  } else {
    total = all_weights(s);
  }
  *left = total;
  if (r->top_p >= 1 && !(r->min_p > 0)) return end;
  const double reach = r->top_p < 1 ? (double)r->top_p * total : __builtin_inf();
  const double least = (double)r->min_p * WEIGHT_ONE;
  uint32_t kept = 0;
  double sum = 0;
  while (kept < end && weight_of_rank(s, kept, &id, &weight)) {
    if (kept && weight < least) break;
    kept++;
    sum += weight;
    if (sum >= reach) break;
  }
  *left = sum;
  return kept;
}

uint32_t v_draw(v_sampling *s) {
  double left;
  v_collect(s, 2 * s->row->temperature);
  const uint32_t end = cut(s, &left);
  const uint64_t seed = (uint64_t)s->row->seed_high << 32 | s->row->seed_low;
  const double reach = v_uniform(seed, s->row->position) * left;
  uint32_t token = 0, id;
  double sum = 0, weight;
  for (uint32_t i = 0; i < end && weight_of_rank(s, i, &id, &weight); i++) {
    sum += weight;
    if (i == 0 || weight > 0) token = id;
    if (sum > reach) break;
  }
  return token;
}
