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

/* Allocates or reports V_NO_MEMORY with the size. NULL sets v_detail. */
void *v_plan_alloc(uint64_t bytes);

#endif
