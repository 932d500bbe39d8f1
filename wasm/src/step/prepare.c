#include "kernels/kernels.h"
#include "step/generation.h"
#include "step/step.h"

int32_t v_step_refused(v_arena *ws, v_step_fault fault, uint32_t index) {
  ws->header->detail[0] = fault;
  ws->header->detail[1] = index;
  return ws->header->status = ws->fault = V_BAD_STEP;
}

static int32_t check_seqs(const v_model *m, v_arena *ws, uint32_t tokens, uint32_t seqs) {
  const uint32_t positions = m->program.header->max_positions;
  /* Without a limit positions still have to fit what kernels compute with. */
  const uint64_t limit = positions ? positions : INT32_MAX;
  uint32_t next = 0;
  for (uint32_t s = 0; s < seqs; s++) {
    const v_seq *q = &ws->seqs[s];
    if (q->first_token != next || q->num_tokens == 0 || q->num_tokens > tokens - next ||
        q->pool_skip >= q->num_tokens) {
      return v_step_refused(ws, V_STEP_ROWS, s);
    }
    if ((uint64_t)q->context_len + q->num_tokens > limit) {
      return v_step_refused(ws, V_STEP_POSITION, s);
    }
    next += q->num_tokens;
  }
  return next == tokens ? V_OK : v_step_refused(ws, V_STEP_ROWS, seqs);
}

static int32_t check_tokens(const v_model *m, v_arena *ws, uint32_t tokens) {
  const uint32_t vocabulary = m->program.header->vocab_size;
  for (uint32_t i = 0; i < tokens; i++) {
    if ((uint32_t)ws->tokens[i] >= vocabulary) return v_step_refused(ws, V_STEP_TOKEN, i);
  }
  return V_OK;
}

static void share(const v_model *m, v_arena *ws, uint32_t seqs) {
  uint32_t chunks = 0;
  for (uint32_t s = 0; s < seqs; s++) {
    const v_seq *q = &ws->seqs[s];
    for (uint32_t i = 0; i < q->num_tokens; i++) {
      ws->positions[q->first_token + i] = q->context_len + i;
    }
    for (uint32_t i = 0; i < q->num_tokens; i += V_QUERY_CHUNK) {
      ws->chunks[chunks++] = (v_query_chunk){s, i, v_min_u32(V_QUERY_CHUNK, q->num_tokens - i)};
    }
  }
  ws->num_chunks = chunks;
  v_zero(ws->next_tile, (m->program.num_ops + 2) * sizeof *ws->next_tile);
}

int32_t v_prepare_step(const v_model *m, v_arena *ws) {
  v_step_header *h = ws->header;
  const uint32_t tokens = h->num_tokens, seqs = h->num_seqs;
  h->detail[0] = h->detail[1] = 0;
  if (tokens == 0 || tokens > m->max_tokens || seqs == 0 || seqs > m->max_seqs) {
    return v_step_refused(ws, V_STEP_COUNTS, tokens == 0 || tokens > m->max_tokens ? tokens : seqs);
  }
  if (check_seqs(m, ws, tokens, seqs) != V_OK || check_tokens(m, ws, tokens) != V_OK) {
    return V_BAD_STEP;
  }
  if (m->is_decoder) {
    if (v_prepare_generation(m, ws, tokens, seqs) != V_OK) return V_BAD_STEP;
  } else if (h->num_wanted || h->num_copies || h->sampling) {
    return v_step_refused(ws, V_STEP_COUNTS, h->num_wanted);
  }
  share(m, ws, seqs);
  ws->num_tokens = tokens;
  ws->num_seqs = seqs;
  return h->status = ws->fault = V_OK;
}
