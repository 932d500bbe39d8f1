#include "plan/memory.h"

#define V_PAGE 65536u

extern uint8_t __heap_base;

static uint64_t heap_top; /* 0 = nothing allocated yet */

uint64_t v_memory_size(void) { return (uint64_t)__builtin_wasm_memory_size(0) * V_PAGE; }

bool v_in_memory(uint32_t address, uint64_t bytes) {
  return address != 0 && (uint64_t)address + bytes <= v_memory_size();
}

uint64_t v_heap_mark(void) {
  if (heap_top == 0) {
    heap_top = v_round_up((uint64_t)(uintptr_t)&__heap_base, V_ALIGNMENT);
  }
  return heap_top;
}

void v_heap_reset(uint64_t mark) { heap_top = mark; }

void *v_heap_alloc(uint64_t bytes) {
  /* The last page stays free, so that a one-past-the-end pointer never wraps to 0 and
   * a vector load at the end of a buffer never leaves the memory. */
  const uint64_t limit = (uint64_t)UINT32_MAX + 1 - V_PAGE;
  uint64_t start = v_heap_mark();
  if (bytes > limit || start + bytes > limit) return NULL;
  uint64_t end = v_round_up(start + bytes, V_ALIGNMENT);
  uint64_t size = v_memory_size();
  if (end > size) {
    uint64_t pages = (end - size + V_PAGE - 1) / V_PAGE;
    if (__builtin_wasm_memory_grow(0, (size_t)pages) == SIZE_MAX) return NULL;
  }
  heap_top = end;
  return (void *)(uintptr_t)start;
}
