#include "kernels/kernels.h"
#include "plan/memory.h"
#include "plan/plan.h"

static uint64_t scratch_bytes(const v_program *p) {
  uint64_t most = 0;
  for (uint32_t i = 0; i < p->num_ops; i++) {
    const v_op_record *op = &p->ops[i];
    if (op->kind == V_OP_LINEAR) most = v_max_u64(most, v_linear_scratch(p, op));
    if (op->kind == V_OP_ATTENTION) most = v_max_u64(most, v_attention_scratch(p, op));
  }
  /* Whole cache lines apart, so that threads never share one. */
  return v_round_up(most + V_SLACK, 128);
}

#define ALLOCATE(field, count)                                        \
  field = v_plan_alloc((uint64_t)(count) * sizeof *(field) + V_SLACK); \
  if (!(field)) return V_NO_MEMORY

static int32_t allocate_workspace(v_model *m, v_arena *ws) {
  const v_program *p = &m->program;
  ALLOCATE(ws->header, 1);
  ALLOCATE(ws->tokens, m->max_tokens);
  ALLOCATE(ws->seqs, m->max_seqs);
  ALLOCATE(ws->status, m->max_seqs);
  ALLOCATE(ws->positions, m->max_tokens);
  ALLOCATE(ws->chunks, (uint64_t)m->max_seqs + m->max_tokens / V_QUERY_CHUNK);
  ALLOCATE(ws->next_tile, (uint64_t)p->num_ops + 1);
  ALLOCATE(ws->scratch, (uint64_t)m->scratch_bytes * m->num_threads);
  ALLOCATE(ws->slots, p->num_slots);
  *ws->header = (v_step_header){0};
  ws->arrived = ws->generation = ws->num_chunks = 0;
  for (uint32_t i = 0; i < p->num_slots; i++) {
    const uint64_t rows = p->slots[i].rows == V_ROWS_TOKENS ? m->max_tokens : m->max_seqs;
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
