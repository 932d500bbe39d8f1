/* What every file needs: no libc, so the few helpers it would bring are here. */
#ifndef VOLERY_BASE_H
#define VOLERY_BASE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define V_INLINE static inline __attribute__((always_inline))
#define V_NOINLINE __attribute__((noinline))
#define V_UNROLL _Pragma("clang loop unroll(full)")
/* V8 compiles the plain loop best: unrolled, it spills accumulators. */
#define V_KEEP_LOOP _Pragma("clang loop unroll(disable)")
/* Hides where a pointer came from. Loads at constant distances from it then become the
 * offsets of wasm's load instructions; without it the loop optimizer rewrites each into
 * an addition that the engine has to execute. */
#define V_BASE(pointer) __asm__("" : "+r"(pointer))
#define V_EXPORT(name) __attribute__((export_name(#name)))

V_INLINE uint32_t v_min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }
V_INLINE uint32_t v_max_u32(uint32_t a, uint32_t b) { return a > b ? a : b; }
V_INLINE uint64_t v_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }
V_INLINE uint32_t v_ceil_div(uint32_t a, uint32_t b) { return a / b + (a % b != 0); }
V_INLINE uint64_t v_round_up(uint64_t a, uint64_t multiple) {
  return (a + multiple - 1) / multiple * multiple;
}

/* Bulk memory operations; the compiler turns them into memory.copy and memory.fill. */
V_INLINE void v_copy(void *to, const void *from, size_t bytes) {
  __builtin_memcpy(to, from, bytes);
}
V_INLINE void v_zero(void *to, size_t bytes) { __builtin_memset(to, 0, bytes); }

/* Host buffers have any alignment. */
V_INLINE uint32_t v_load_u32(const uint8_t *p) {
  uint32_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
V_INLINE uint16_t v_load_u16(const uint8_t *p) {
  uint16_t x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}

V_INLINE bool v_is_finite(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return (bits & 0x7f800000u) != 0x7f800000u;
}

#endif
