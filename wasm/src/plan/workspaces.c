#include "kernels/kernels.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "program/validate.h"

static uint64_t scratch_bytes(const v_program *p) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < p->num_ops; i++) {
    const v_op_record *op = &p->ops[i];
    if (op->kind == V_OP_LINEAR) most = v_max_u64(most, v_linear_scratch(p, op));
    if (op->kind == V_OP_ATTENTION) most = v_max_u64(most, v_attention_scratch(p, op));
  }
  if (v_is_decoder(p)) most = v_max_u64(most, v_sample_scratch(p));
  /* Whole cache lines apart, so that threads never share one. */
  return v_round_up(most + V_SLACK, 128);
}

static int32_t allocate_workspace(v_model *m, v_arena *ws) {
  const v_program *p = &m->program;
  ALLOCATE(ws->header, 1);
  ALLOCATE(ws->tokens, m->max_tokens);
  ALLOCATE(ws->seqs, m->max_seqs);
  ALLOCATE(ws->status, m->max_seqs);
  ALLOCATE(ws->positions, m->max_tokens);
  ALLOCATE(ws->chunks, (uint64_t)m->max_seqs + m->max_tokens / V_QUERY_CHUNK);
  ALLOCATE(ws->next_tile, (uint64_t)p->num_ops + 2);
  ALLOCATE(ws->scratch, (uint64_t)m->scratch_bytes * m->num_threads);
  ALLOCATE(ws->slots, p->num_slots);
  *ws->header = (v_step_header){0};
  ws->gen = (v_generation){0};
  ws->arrived = ws->generation = ws->abandoned = ws->num_chunks = 0;
  for (uint32_t i = 0; i < p->num_slots; i++) {
    const v_rows kind = (v_rows)p->slots[i].rows;
    /* v_cache says how many rows can be wanted; without it none are. */
    const uint64_t rows = kind == V_ROWS_TOKENS ? m->max_tokens
                          : kind == V_ROWS_SEQS ? m->max_seqs
                                                : 0;
    ALLOCATE(ws->slots[i], rows * p->slots[i].width);
  }
  return V_OK;
}

int32_t v_plan_workspaces(v_model *m) {
  const uint64_t start = v_heap_mark();
  const uint64_t scratch = scratch_bytes(&m->program);
  if (scratch > UINT32_MAX)
    return v_fail(V_NO_MEMORY, (uint32_t)scratch, (uint32_t)(scratch >> 32));
  m->scratch_bytes = (uint32_t)scratch;
  ALLOCATE(m->workspaces, m->num_workspaces);
  for (uint32_t i = 0; i < m->num_workspaces; i++) {
    if (allocate_workspace(m, &m->workspaces[i]) != V_OK) return V_NO_MEMORY;
  }
#ifdef __wasm_atomics__
  ALLOCATE(m->mailboxes, m->num_threads);
  v_zero(m->mailboxes, m->num_threads * sizeof *m->mailboxes);
  ALLOCATE(m->stacks, (uint64_t)m->num_threads * V_STACK_BYTES);
#endif
  m->workspace_bytes = v_heap_mark() - start;
  return V_OK;
}
