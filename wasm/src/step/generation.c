#include "step/generation.h"

#define READ 1u
#define WRITTEN 2u

static int32_t check_copies(const v_model *m, v_arena *ws, uint32_t copies) {
  v_generation *g = &ws->gen;
  if (copies > m->kv_blocks) return v_step_refused(ws, V_STEP_COPIES, copies);
  if (copies) v_zero(g->marks, m->kv_blocks);
  for (uint32_t i = 0; i < copies; i++) {
    const v_block_copy c = g->copies[i];
    if (c.from >= m->kv_blocks || c.to >= m->kv_blocks) {
      return v_step_refused(ws, V_STEP_COPIES, i);
    }
    g->marks[c.from] |= READ;
    if (g->marks[c.to] || g->marks[c.from] != READ) return v_step_refused(ws, V_STEP_COPIES, i);
    g->marks[c.to] = WRITTEN;
  }
  return V_OK;
}

/* Also notes every token's place in the cache. */
static int32_t check_tables(const v_model *m, v_arena *ws, uint32_t seqs) {
  v_generation *g = &ws->gen;
  const uint64_t pool = (uint64_t)m->max_seqs * m->table_blocks;
  v_zero(g->marks, m->kv_blocks);
  for (uint32_t s = 0; s < seqs; s++) {
    const v_seq *q = &ws->seqs[s];
    const uint32_t first = q->context_len / V_KV_BLOCK;
    const uint32_t blocks = v_ceil_div(q->context_len + q->num_tokens, V_KV_BLOCK);
    if ((uint64_t)g->tables[s] + blocks > pool) return v_step_refused(ws, V_STEP_BLOCKS, s);
    const uint32_t *table = g->blocks + g->tables[s];
    for (uint32_t b = 0; b < blocks; b++) {
      if (table[b] >= m->kv_blocks) return v_step_refused(ws, V_STEP_BLOCKS, s);
      if (b < first) continue;
      if (g->marks[table[b]]) return v_step_refused(ws, V_STEP_BLOCKS, s);
      g->marks[table[b]] = WRITTEN;
    }
    for (uint32_t i = 0; i < q->num_tokens; i++) {
      const uint32_t position = q->context_len + i;
      g->places[q->first_token + i] =
          table[position / V_KV_BLOCK] * V_KV_BLOCK + position % V_KV_BLOCK;
    }
  }
  return V_OK;
}

/* Also notes each sequence's first wanted row. */
static int32_t check_wanted(const v_model *m, v_arena *ws, uint32_t tokens, uint32_t seqs,
                            uint32_t wanted) {
  v_generation *g = &ws->gen;
  if (wanted > m->max_wanted) return v_step_refused(ws, V_STEP_WANTED, wanted);
  for (uint32_t i = 0; i < wanted; i++) {
    if (g->wanted[i] >= tokens || (i && g->wanted[i] <= g->wanted[i - 1])) {
      return v_step_refused(ws, V_STEP_WANTED, i);
    }
  }
  uint32_t next = 0;
  for (uint32_t s = 0; s < seqs; s++) {
    g->first_wanted[s] = next;
    const uint32_t end = ws->seqs[s].first_token + ws->seqs[s].num_tokens;
    while (next < wanted && g->wanted[next] < end) next++;
  }
  g->first_wanted[seqs] = next;
  return V_OK;
}

static bool between(float x, float low, float high) { return x >= low && x <= high; }

static bool numbers_fit(const v_sample_row *r) {
  return (r->temperature == 0 || between(r->temperature, 1e-6f, 1e6f)) && between(r->top_p, 0, 1) &&
         between(r->min_p, 0, 1) && between(r->repetition, 1e-3f, 1e3f) &&
         between(r->presence, -1e3f, 1e3f) && between(r->frequency, -1e3f, 1e3f) &&
         r->top_logprobs <= V_MAX_TOP;
}

static bool in_pool(const v_model *m, uint32_t at, uint32_t count, uint32_t words) {
  return (uint64_t)at + (uint64_t)count * words <= m->data_words;
}

static bool allows_any(const uint32_t *mask, uint32_t vocabulary) {
  uint32_t any = 0;
  for (uint32_t i = 0; i < vocabulary / 32; i++) any |= mask[i];
  if (vocabulary % 32) any |= mask[vocabulary / 32] & ((1u << vocabulary % 32) - 1);
  return any != 0;
}

static bool data_fit(const v_model *m, const v_generation *g, const v_sample_row *r) {
  const uint32_t vocabulary = m->program.header->vocab_size;
  if (!in_pool(m, r->penalized_at, r->penalized_count, 3)) return false;
  for (uint32_t i = 0; i < r->penalized_count; i++) {
    if (g->data[r->penalized_at + 3 * i] >= vocabulary) return false;
  }
  if (!in_pool(m, r->bias_at, r->bias_count, 2)) return false;
  for (uint32_t i = 0; i < r->bias_count; i++) {
    float bias;
    __builtin_memcpy(&bias, &g->data[r->bias_at + 2 * i + 1], sizeof bias);
    if (g->data[r->bias_at + 2 * i] >= vocabulary || !between(bias, -1e9f, 1e9f)) return false;
  }
  if (r->mask_at == V_NO_MASK) return true;
  return in_pool(m, r->mask_at, v_ceil_div(vocabulary, 32), 1) &&
         allows_any(g->data + r->mask_at, vocabulary);
}

static int32_t check_rows(const v_model *m, v_arena *ws, uint32_t wanted) {
  for (uint32_t i = 0; i < wanted; i++) {
    const v_sample_row *row = &ws->gen.rows[i];
    if (!numbers_fit(row) || !data_fit(m, &ws->gen, row)) {
      return v_step_refused(ws, V_STEP_SAMPLE, i);
    }
  }
  return V_OK;
}

int32_t v_prepare_generation(const v_model *m, v_arena *ws, uint32_t tokens, uint32_t seqs) {
  const uint32_t wanted = ws->header->num_wanted, copies = ws->header->num_copies;
  const uint32_t sampling = ws->header->sampling;
  if (sampling > 1) return v_step_refused(ws, V_STEP_COUNTS, sampling);
  int32_t error = check_copies(m, ws, copies);
  if (error == V_OK) error = check_tables(m, ws, seqs);
  if (error == V_OK) error = check_wanted(m, ws, tokens, seqs, wanted);
  if (error == V_OK && sampling) error = check_rows(m, ws, wanted);
  ws->gen.num_wanted = wanted;
  ws->gen.num_copies = copies;
  ws->gen.sampling = sampling;
  return error;
}
