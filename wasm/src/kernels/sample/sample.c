/* What closes a decoder's step: the status of every sequence, and its tokens. */
#include "kernels/sample/sample.h"

#include "kernels/kernels.h"

/* A span that holds every candidate. */
#define EVERYTHING __builtin_inff()

uint64_t v_sample_scratch(const v_program *p) {
  return (uint64_t)p->header->vocab_size * sizeof(uint64_t);
}

/* Vocabularies are long: a sequence's rows are a tile of their own. */
uint32_t v_sample_tiles(const v_task *t) { return t->num_seqs; }

static void sample(const v_task *t, uint32_t wanted, float *logits) {
  const v_generation *g = &t->ws->gen;
  const v_sample_row *row = &g->rows[wanted];
  v_sampled *out = &g->sampled[wanted];
  v_sampling s = {
      .row = row,
      .data = g->data,
      .mask = row->mask_at == V_NO_MASK ? NULL : g->data + row->mask_at,
      .logits = logits,
      .vocabulary = t->model->program.header->vocab_size,
      .keys = (uint64_t *)(void *)t->scratch,
  };
  v_adjust_logits(&s);
  const double log_total = v_log_total(&s);
  v_collect(&s, 0);
  uint32_t token = 0, id;
  v_ranked(&s, 0, EVERYTHING, &token);
  out->num_top = 0;
  while (out->num_top < row->top_logprobs && v_ranked(&s, out->num_top, EVERYTHING, &id)) {
    out->top[out->num_top].token = (int32_t)id;
    out->top[out->num_top++].logprob = (float)((double)(logits[id] - s.max) - log_total);
  }
  if (row->temperature != 0) token = v_draw(&s);
  out->token = (int32_t)token;
  out->logprob = (float)((double)(logits[token] - s.max) - log_total);
}

void v_sample_run(v_task *t, uint32_t tile) {
  const v_generation *g = &t->ws->gen;
  const size_t vocabulary = t->model->program.header->vocab_size;
  float *output = v_slot(t, (int32_t)t->model->program.header->output_slot);
  uint8_t status = 0;
  for (uint32_t i = g->first_wanted[tile]; i < g->first_wanted[tile + 1]; i++) {
    float *logits = output + i * vocabulary;
    const bool finite = v_all_finite(logits, vocabulary);
    if (!finite) status = 1;
    if (!g->sampling) continue;
    if (finite) {
      sample(t, i, logits);
    } else {
      g->sampled[i] = (v_sampled){.token = -1, .logprob = __builtin_nanf("")};
    }
  }
  t->ws->status[tile] = status;
}
