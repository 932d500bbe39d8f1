/* A row of logits to a token, in the order and arithmetic of docs/design.md 7.2. */
#ifndef VOLERY_SAMPLE_H
#define VOLERY_SAMPLE_H
#include "core/model.h"

/* One wanted row. The logits are changed in place. */
typedef struct {
  const v_sample_row *row;
  const uint32_t *data;  /* what the row points into */
  const uint32_t *mask;  /* or NULL */
  float *logits;
  uint32_t vocabulary;
  float max;             /* of the candidates, once they are known */
  uint64_t *ranked;      /* scratch: [vocabulary] */
} v_sampling;

/* Step 1 and 2: penalties, bias; fills max. Masked-out logits become minus infinity. */
void v_adjust_logits(v_sampling *s);

/* log(sum exp(l - max)) over the candidates. */
double v_log_total(const v_sampling *s);

/* Sorts candidates by rank into s->ranked, at least the first `least` of them and as many
 * as lie at most `span` below the maximum; returns how many. */
uint32_t v_rank(const v_sampling *s, uint32_t least, float span);

/* The id and the logit of an entry of s->ranked. */
V_INLINE uint32_t v_ranked_id(uint64_t entry) { return (uint32_t)entry; }

/* Steps 5 to 7: the drawn token. */
uint32_t v_draw(const v_sampling *s);

/* Output number `position` of SplitMix64 at a scrambled seed, in [0, 1). */
double v_uniform(uint64_t seed, uint32_t position);

#endif
