/* What closes a decoder's step: the status of every sequence, and its tokens. */
#include "kernels/sample/sample.h"

#include "kernels/kernels.h"

uint64_t v_sample_scratch(const v_program *p) {
  return (uint64_t)p->header->vocab_size * sizeof(uint64_t);
}

/* Vocabularies are long: a sequence's rows are a tile of their own. */
uint32_t v_sample_tiles(const v_task *t) { return t->num_seqs; }

static uint32_t first_ranks(v_sampling *s, uint32_t count) {
  const uint32_t ranked = v_rank(s, count, 4.0f);
  return v_min_u32(ranked, count);
}

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
      .ranked = (uint64_t *)(void *)t->scratch,
  };
  v_adjust_logits(&s);
  const double log_total = v_log_total(&s);
  const uint32_t ranks = first_ranks(&s, v_max_u32(1, row->top_logprobs));
  out->num_top = v_min_u32(ranks, row->top_logprobs);
  for (uint32_t i = 0; i < out->num_top; i++) {
    const uint32_t id = v_ranked_id(s.ranked[i]);
    out->top[i].token = (int32_t)id;
    out->top[i].logprob = (float)((double)(logits[id] - s.max) - log_total);
  }
  const uint32_t first = ranks ? v_ranked_id(s.ranked[0]) : 0;
  const uint32_t token = row->temperature == 0 || !ranks ? first : v_draw(&s);
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
