/* What differs between the single-thread and the threads builds inside a step. */
#ifndef VOLERY_THREADS_H
#define VOLERY_THREADS_H
#include "core/model.h"

#ifdef __wasm_atomics__

/* The next tile of an op: each is handed out once. */
V_INLINE uint32_t v_take_tile(uint32_t *next) {
  return __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
}

/* Returns true when all `ranks` threads of the step have arrived; what they wrote before
 * is visible after. False when the step was abandoned. */
bool v_barrier(v_arena *ws, uint32_t ranks);

V_INLINE bool v_is_abandoned(const v_arena *ws) {
  return __atomic_load_n(&ws->abandoned, __ATOMIC_ACQUIRE) != 0;
}

/* Waits until *word differs from `seen` and returns its new value. */
uint32_t v_wait_change(const uint32_t *word, uint32_t seen);

#else

V_INLINE uint32_t v_take_tile(uint32_t *next) { return (*next)++; }
V_INLINE bool v_barrier(v_arena *ws, uint32_t ranks) {
  (void)ws;
  (void)ranks;
  return true;
}
V_INLINE bool v_is_abandoned(const v_arena *ws) {
  (void)ws;
  return false;
}

#endif
#endif
