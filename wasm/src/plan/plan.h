/* Sizes and allocates everything a model needs, before the first weight arrives. */
#ifndef VOLERY_PLAN_H
#define VOLERY_PLAN_H
#include "core/model.h"

/* A vector load may reach this far behind the last element of a buffer. */
#define V_SLACK 256
#define V_STACK_BYTES 65536

/* Decides each tensor's layout from its uses and allocates it. */
int32_t v_plan_weights(v_model *m);

/* Allocates slots, inputs, outputs, scratch, mailboxes and stacks. */
int32_t v_plan_workspaces(v_model *m);

/* Decoders: finds the layers of the cache before v_cache sizes them. */
int32_t v_plan_layers(v_model *m);

/* Decoders: allocates the cache and what workspaces have besides. The limits (kv_blocks,
 * cache_format, max_wanted, data_words) are the model's. */
int32_t v_plan_cache(v_model *m);

/* Bytes of the part of a workspace that begins with V_WS_TABLES or later; 0 before
 * v_plan_cache. */
uint64_t v_generation_part_bytes(const v_model *m, v_ws_part part);

/* Allocates or reports V_NO_MEMORY with the size. NULL sets v_detail. */
void *v_plan_alloc(uint64_t bytes);

/* For functions that return a v_error. */
#define ALLOCATE(field, count)                                         \
  field = v_plan_alloc((uint64_t)(count) * sizeof *(field) + V_SLACK); \
  if (!(field)) return V_NO_MEMORY

#endif
