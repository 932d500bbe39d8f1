#ifdef __wasm_atomics__
#include "step/threads.h"

#include "plan/memory.h"
#include "plan/plan.h"
#include "step/step.h"

/* Tries before a thread goes to sleep. Tiles are short, so a partner is usually less
 * than this (about 15 microseconds) behind; sleeping and waking costs up to 80. */
#define SPINS 16384

#define SIGNAL_STEP 1u
#define SIGNAL_STOP 2u

uint32_t v_wait_change(const uint32_t *word, uint32_t seen) {
  uint32_t value = seen;
  for (uint32_t i = 0; i < SPINS; i++) {
    value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
    if (value != seen) return value;
  }
  while ((value = __atomic_load_n(word, __ATOMIC_SEQ_CST)) == seen) {
    __builtin_wasm_memory_atomic_wait32((int *)(uintptr_t)word, (int)seen, -1);
  }
  return value;
}

static void wake_all(uint32_t *word) {
  __builtin_wasm_memory_atomic_notify((int *)(void *)word, UINT32_MAX);
}

bool v_barrier(v_arena *ws, uint32_t ranks) {
  if (ranks == 1) return true;
  /* Nobody can pass into the next round before this one's last thread has moved the
   * generation on, so reading it before arriving is safe. v_abandon moves it on after it
   * has set its flag: whoever misses the flag here is woken. */
  const uint32_t generation = __atomic_load_n(&ws->generation, __ATOMIC_SEQ_CST);
  if (v_is_abandoned(ws)) return false;
  if (__atomic_add_fetch(&ws->arrived, 1, __ATOMIC_ACQ_REL) == ranks) {
    __atomic_store_n(&ws->arrived, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&ws->generation, generation + 1, __ATOMIC_SEQ_CST);
    wake_all(&ws->generation);
  } else {
    v_wait_change(&ws->generation, generation);
  }
  return !v_is_abandoned(ws);
}

V_EXPORT(v_abandon) void v_abandon(uint32_t index) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_SEALED || index >= m->num_workspaces) return;
  v_arena *ws = &m->workspaces[index];
  ws->header->status = V_ABANDONED;
  __atomic_store_n(&ws->abandoned, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&ws->generation, 1, __ATOMIC_SEQ_CST);
  wake_all(&ws->generation);
}

V_EXPORT(v_stack_top) uint32_t v_stack_top(uint32_t thread) {
  const v_model *m = &v_the_model;
  extern uint8_t __stack_high; /* the loader keeps the stack it was linked with */
  if (m->state == V_STATE_EMPTY || thread > m->num_threads) return 0;
  if (thread == m->num_threads) return (uint32_t)(uintptr_t)&__stack_high;
  return (uint32_t)(uintptr_t)(m->stacks + (size_t)(thread + 1) * V_STACK_BYTES);
}

V_EXPORT(v_post) void v_post(uint32_t thread, uint32_t ws, uint32_t rank, uint32_t ranks) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_SEALED || thread >= m->num_threads || ws >= m->num_workspaces ||
      ranks == 0 || ranks > m->num_threads || rank >= ranks) {
    return;
  }
  v_mailbox *box = &m->mailboxes[thread];
  box->ws = ws;
  box->rank = rank;
  box->ranks = ranks;
  __atomic_fetch_or(&box->signal, SIGNAL_STEP, __ATOMIC_SEQ_CST);
  wake_all(&box->signal);
}

V_EXPORT(v_stop) void v_stop(uint32_t thread) {
  v_model *m = &v_the_model;
  if (m->state == V_STATE_EMPTY || thread >= m->num_threads) return;
  __atomic_fetch_or(&m->mailboxes[thread].signal, SIGNAL_STOP, __ATOMIC_SEQ_CST);
  wake_all(&m->mailboxes[thread].signal);
}

V_EXPORT(v_worker) int32_t v_worker(uint32_t thread) {
  v_model *m = &v_the_model;
  if (m->state == V_STATE_EMPTY || thread >= m->num_threads) return -1;
  v_mailbox *box = &m->mailboxes[thread];
  for (;;) {
    uint32_t signal = __atomic_load_n(&box->signal, __ATOMIC_ACQUIRE);
    if (signal == 0) signal = v_wait_change(&box->signal, 0);
    /* A step that was posted before the stop is still run: others depend on it. */
    if (!(signal & SIGNAL_STEP)) return -1;
    const uint32_t ws = box->ws, rank = box->rank, ranks = box->ranks;
    __atomic_fetch_and(&box->signal, ~SIGNAL_STEP, __ATOMIC_SEQ_CST);
    v_run_rank(m, ws, rank, ranks);
    if (rank == 0) return (int32_t)ws;
  }
}

V_EXPORT(v_lead) int32_t v_lead(uint32_t ws, uint32_t ranks) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_SEALED) return v_fail(V_BAD_CALL, 0, 0);
  if (ws >= m->num_workspaces) return v_fail(V_BAD_CALL, 1, ws);
  if (ranks == 0 || ranks > m->num_threads) return v_fail(V_BAD_CALL, 2, ranks);
  return v_lead_step(m, ws, ranks);
}
#endif
