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

/* A walk down the ranks, which are sorted only as far as it gets. */
typedef struct {
  const v_sampling *s;
  uint32_t sorted; /* entries of s->ranked that are in place */
  uint32_t end;    /* ranks to walk at most: top-k, or all */
  float span;
} v_walk;

static bool has_rank(v_walk *w, uint32_t rank) {
  if (rank >= w->end) return false;
  const float most = -LOWEST_EXPONENT * w->s->row->temperature;
  while (rank >= w->sorted && w->span < most) {
    w->span *= 4;
    w->sorted = v_rank(w->s, 0, w->span);
  }
  /* Further down every weight is 0: no cut and no draw gets there. */
  return rank < w->sorted;
}

static double rank_weight(const v_walk *w, uint32_t rank) {
  return weight_of(w->s, v_ranked_id(w->s->ranked[rank]));
}

/* Steps 6: how many ranks the cuts leave, and their weight in *left. */
static uint32_t cut(v_walk *w, double *left) {
  const v_sample_row *r = w->s->row;
  double total = 0;
  if (w->end == UINT32_MAX) {
    total = all_weights(w->s);
  } else {
    for (uint32_t i = 0; has_rank(w, i); i++) total += rank_weight(w, i);
  }
  *left = total;
  if (r->top_p >= 1 && !(r->min_p > 0)) return w->end;
  const double reach = r->top_p < 1 ? (double)r->top_p * total : __builtin_inf();
  const double least = (double)r->min_p * WEIGHT_ONE;
  uint32_t kept = 0;
  double sum = 0;
  while (has_rank(w, kept)) {
    const double weight = rank_weight(w, kept);
    if (kept && weight < least) break;
    kept++;
    sum += weight;
    if (sum >= reach) break;
  }
  *left = sum;
  return kept;
}

uint32_t v_draw(const v_sampling *s) {
  v_walk w = {.s = s, .end = s->row->top_k ? s->row->top_k : UINT32_MAX};
  w.span = 2 * s->row->temperature;
  w.sorted = v_rank(s, 1, w.span);
  double left;
  w.end = cut(&w, &left);
  const uint64_t seed = (uint64_t)s->row->seed_high << 32 | s->row->seed_low;
  const double reach = v_uniform(seed, s->row->position) * left;
  uint32_t token = v_ranked_id(s->ranked[0]);
  double sum = 0;
  for (uint32_t i = 0; has_rank(&w, i); i++) {
    const double weight = rank_weight(&w, i);
    sum += weight;
    if (weight > 0) token = v_ranked_id(s->ranked[i]);
    if (sum > reach) break;
  }
  return token;
}
