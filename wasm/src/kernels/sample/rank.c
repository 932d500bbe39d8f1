/* Ranking without sorting a whole vocabulary: only candidates near the maximum, which is
 * where draws fall, are collected and sorted; the span grows when they were too few. */
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
      s->ranked[n++] = key_of(s->logits[id], id);
    }
  }
  for (; i < s->vocabulary; i++) {
    const float l = s->logits[i];
    if (l >= low && l != -__builtin_inff()) s->ranked[n++] = key_of(l, i);
  }
  return n;
}

static void sift_down(uint64_t *heap, uint32_t at, uint32_t n) {
  const uint64_t x = heap[at];
  for (uint32_t child; (child = 2 * at + 1) < n; at = child) {
    if (child + 1 < n && heap[child + 1] > heap[child]) child++;
    if (heap[child] <= x) break;
    heap[at] = heap[child];
  }
  heap[at] = x;
}

/* Heapsort (Williams 1964): in place, without a bad case. Keys differ, so every sort
 * gives the same order. */
static void sort(uint64_t *keys, uint32_t n) {
  for (uint32_t i = n / 2; i-- > 0;) sift_down(keys, i, n);
  for (uint32_t end = n; end-- > 1;) {
    const uint64_t largest = keys[0];
    keys[0] = keys[end];
    keys[end] = largest;
    sift_down(keys, 0, end);
  }
}

uint32_t v_rank(const v_sampling *s, uint32_t least, float span) {
  const float everything = 0x1p127f;
  uint32_t n = 0;
  for (;; span *= 4) {
    const bool last = !(span < everything);
    n = collect(s, last ? -__builtin_inff() : s->max - span);
    if (n >= least || last) break;
  }
  sort(s->ranked, n);
  return n;
}
