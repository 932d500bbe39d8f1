/* What a decoder's step has besides: block tables, copies, wanted rows, sampling rows. */
#ifndef VOLERY_GENERATION_H
#define VOLERY_GENERATION_H
#include "core/model.h"

/* Records the fault in the header; returns V_BAD_STEP. */
int32_t v_step_refused(v_arena *ws, v_step_fault fault, uint32_t index);

/* Checks all of it, so that no kernel reads or writes outside the cache or the pools
 * whatever the host wrote, and fills what ops share (places, first_wanted). The rows of
 * sequences have been checked. */
int32_t v_prepare_generation(const v_model *m, v_arena *ws, uint32_t tokens, uint32_t seqs);

#endif
