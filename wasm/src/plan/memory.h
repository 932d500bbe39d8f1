/* The bump allocator over the imported memory. */
#ifndef VOLERY_MEMORY_H
#define VOLERY_MEMORY_H
#include "core/base.h"

#define V_ALIGNMENT 64

/* Address of the next allocation; v_heap_reset takes everything after it back. */
uint64_t v_heap_mark(void);
void v_heap_reset(uint64_t mark);

/* 64-byte aligned; NULL when memory cannot grow. The bytes are not cleared. */
void *v_heap_alloc(uint64_t bytes);

/* All bytes of the memory, and whether [address, address + bytes) lies inside. */
uint64_t v_memory_size(void);
bool v_in_memory(uint32_t address, uint64_t bytes);

#endif
