/* Runs one step: checks its inputs, then every op, on one or several threads. */
#ifndef VOLERY_STEP_H
#define VOLERY_STEP_H
#include "core/model.h"

/* Checks the inputs of `ws` and prepares what ops share (positions, query chunks, tile
 * counters). Returns V_OK or V_BAD_STEP with the fault in the header. */
int32_t v_prepare_step(const v_model *m, v_arena *ws);

/* One rank's part of a step; rank 0 prepares it. Every rank returns the same status, and
 * a fault's details are in the workspace's header; V_ABANDONED when another rank died. */
int32_t v_run_rank(v_model *m, uint32_t ws, uint32_t rank, uint32_t ranks);

/* Rank 0's part on the calling thread; a fault's details also go to v_detail. */
int32_t v_lead_step(v_model *m, uint32_t ws, uint32_t ranks);

#endif
