/* Attention over the paged cache: a block of keys is a block of the cache, walked in
 * absolute order. The arithmetic is that of attention.h, so a query's bits depend on its
 * position and on what the cache holds, not on the step that it came in.
 *
 * A tile is a chunk of one sequence's queries by one key/value head. Its *rows* are the
 * (query, head) pairs of all heads that share the keys: a single query of a decode still
 * fills the micro-kernels with its heads, and reads the cache once. */
#ifndef VOLERY_PAGED_H
#define VOLERY_PAGED_H
#include "kernels/attention/attention.h"

uint64_t v_paged_scratch(const v_op_record *op);
void v_paged_run(v_task *t, uint32_t tile);

#endif
