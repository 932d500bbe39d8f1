/* Ranking without sorting a whole vocabulary: only candidates near the maximum, which is
 * where draws fall, are collected, into a heap from which they are taken one by one; the
 * span grows when they were too few. Keys differ, so the order does not depend on how. */
#include "kernels/sample/sample.h"
#include "math/exponential.h"

/* Ascending keys are descending logits, then ascending ids. */
static uint64_t key_of(float logit, uint32_t id) {
  uint32_t bits;
  logit += 0.0f; /* -0 ranks with 0 */
  __builtin_memcpy(&bits, &logit, sizeof bits);
  bits = bits >> 31 ? bits : ~bits & 0x7fffffffu;
  return (uint64_t)bits << 32 | id;
}

/* Candidates whose logit is at least `low`. */
static uint32_t collect(const v_sampling *s, float low) {
  const v128_t limit = v_splat(low), lowest = V_F32(-__builtin_inff());
  uint32_t n = 0, i = 0;
  for (; i + 4 <= s->vocabulary; i += 4) {
    const v128_t l = v_load(s->logits + i);
    uint32_t found =
        wasm_i32x4_bitmask(wasm_v128_and(wasm_f32x4_ge(l, limit), wasm_f32x4_ne(l, lowest)));
    for (; found; found &= found - 1) {
      const uint32_t id = i + (uint32_t)__builtin_ctz(found);
      s->keys[n++] = key_of(s->logits[id], id);
    }
  }
  for (; i < s->vocabulary; i++) {
    const float l = s->logits[i];
    if (l >= low && l != -__builtin_inff()) s->keys[n++] = key_of(l, i);
  }
  return n;
}

static void sift_down(uint64_t *heap, uint32_t at, uint32_t n) {
  const uint64_t x = heap[at];
  for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && heap[child + 1] < heap[child]) child++;
    if (heap[child] >= x) break;
    heap[at] = heap[child];
  }
  heap[at] = x;
}

void v_collect(v_sampling *s, float span) {
  s->span = span;
  s->count = s->heap = collect(s, s->max - span);
  for (uint32_t i = s->count / 2; i-- > 0;) sift_down(s->keys, i, s->count);
}

bool v_ranked(v_sampling *s, uint32_t rank, float most, uint32_t *id) {
  while (rank >= s->count && s->span < most) v_collect(s, s->span > 0 ? 4 * s->span : 1.0f);
  if (rank >= s->count) return false;
  while (s->count - s->heap <= rank) { /* heapsort's step (Williams 1964) */
    const uint64_t best = s->keys[0];
    s->keys[0] = s->keys[--s->heap];
    s->keys[s->heap] = best;
    sift_down(s->keys, 0, s->heap);
  }
  *id = (uint32_t)s->keys[s->count - 1 - rank];
  return true;
}
