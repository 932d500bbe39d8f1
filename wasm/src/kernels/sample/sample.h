/* A row of logits to a token, in the order and arithmetic of docs/design.md 7.2. */
#ifndef VOLERY_SAMPLE_H
#define VOLERY_SAMPLE_H
#include "core/model.h"

/* One wanted row. The logits are changed in place. */
typedef struct {
  const v_sample_row *row;
  const uint32_t *data; /* what the row points into */
  const uint32_t *mask; /* or NULL */
  float *logits;
  uint32_t vocabulary;
  float max; /* of the candidates, once they are known */
  /* Ranking: the candidates that lie at most `span` below the maximum are a heap in
   * keys[0 .. heap); the best of them, taken out, lie behind it, the first at the end. */
  uint64_t *keys; /* scratch: [vocabulary] */
  uint32_t count, heap;
  float span;
} v_sampling;

/* Step 1 and 2: penalties, bias; fills max. Masked-out logits become minus infinity. */
void v_adjust_logits(v_sampling *s);

/* log(sum exp(l - max)) over the candidates. */
double v_log_total(const v_sampling *s);

/* Collects the candidates at most `span` below the maximum. */
void v_collect(v_sampling *s, float span);

/* The id of the candidate of rank `rank` in *id, collecting more of them while they lie at
 * most `most` below the maximum; false when there is none. */
bool v_ranked(v_sampling *s, uint32_t rank, float most, uint32_t *id);

/* Steps 5 to 7: the drawn token. */
uint32_t v_draw(v_sampling *s);

/* Output number `position` of SplitMix64 at a scrambled seed, in [0, 1). */
double v_uniform(uint64_t seed, uint32_t position);

#endif
