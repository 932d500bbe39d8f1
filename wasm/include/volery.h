/* The ABI between the wasm module and its host (docs/design.md, "The wasm ABI").
 *
 * Life of a model: instantiate with one imported memory `env.memory` (shared in the
 * threads builds) -> v_alloc a buffer, copy program.bin into it -> v_create ->
 * v_write_rows for every tensor -> v_seal -> fill a workspace's inputs -> v_run.
 * Memory grows only inside v_alloc and v_create; never after v_seal.
 * The memory's maximum, where it has one, is at most 65535 pages: the last page of the
 * 4 GiB is never used. Pointers are u32 byte offsets; hosts read them with `>>> 0`.
 * Calls that can fail return a negative `v_error`; v_detail(0..1) then says more.
 */
#ifndef VOLERY_H
#define VOLERY_H
#include <stdint.h>

#define V_ABI_VERSION 1

typedef enum {
  V_OK = 0,
  V_BAD_PROGRAM = -1,  /* detail 0: op index or -1, detail 1: rule number */
  V_UNSUPPORTED = -2,  /* detail 0: op index, detail 1: the unknown kind or format */
  V_NO_MEMORY = -3,    /* detail 0: bytes asked for (low), detail 1: (high) */
  V_BAD_CALL = -4,     /* arguments out of range or out of order; detail 0: which */
  V_INCOMPLETE = -5,   /* v_seal with rows missing; detail 0: tensor index */
  V_BAD_STEP = -6,     /* detail 0: v_step_fault, detail 1: token or sequence index */
} v_error;

typedef enum {
  V_STEP_COUNTS = 1,   /* no tokens or sequences, or more than the limits */
  V_STEP_TOKEN = 2,    /* a token id outside the vocabulary */
  V_STEP_ROWS = 3,     /* rows do not tile the tokens, or an empty row */
  V_STEP_POSITION = 4, /* context_len + num_tokens passes max_positions */
} v_step_fault;

/* Static facts. */
uint32_t v_abi_version(void);
uint32_t v_features(void); /* bit 0: relaxed SIMD, bit 1: threads */
uint32_t v_detail(uint32_t which);

/* Load. 64-byte aligned bump allocation; 0 when memory cannot grow. */
uint32_t v_alloc(uint32_t bytes);
/* Validates the program and sizes everything. `workspaces`: steps that can be in
 * flight at once; `threads`: most threads in one step and in the pool. */
int32_t v_create(uint32_t program, uint32_t program_bytes, uint32_t max_tokens, uint32_t max_seqs,
                 uint32_t workspaces, uint32_t threads);
/* Stores rows row0 .. row0+rows-1 of tensor `t` (a 1-D tensor has shape[0] rows of one
 * element), from host-neutral bytes at data / scale / min (0 where the format has no
 * such part). Ranges may come in any order, each row once; ranges start at a multiple
 * of 8 rows and, but for the last, have a multiple of 8. Codes outside their format's
 * range (I8B32 above 127, I8R -128) are V_BAD_CALL with detail 0 = 4. */
int32_t v_write_rows(uint32_t t, uint32_t row0, uint32_t rows, uint32_t data, uint32_t scale,
                     uint32_t min);
int32_t v_seal(void);
uint64_t v_memory_bytes(uint32_t which); /* 0: weights, 1: workspaces, 2: all */

/* A workspace's parts. */
typedef enum {
  V_WS_HEADER = 0, /* u32: num_tokens, num_seqs (host writes); i32 status, u32 detail[2] */
  V_WS_TOKENS = 1, /* i32[max_tokens] */
  V_WS_SEQS = 2,   /* per sequence u32: first_token, num_tokens, context_len, pool_skip */
  V_WS_OUTPUT = 3, /* f32[rows][width] of the program's output slot */
  V_WS_STATUS = 4, /* u8[max_seqs]: 0 ok, 1 not finite */
} v_ws_part;
uint32_t v_workspace(uint32_t ws, uint32_t part);

/* Run the step in workspace `ws` on the calling thread alone. */
int32_t v_run(uint32_t ws);

/* Threads builds. Every thread has its own instance over the shared memory and its own
 * stack: set the exported global __stack_pointer to v_stack_top(thread) before any
 * other call on that instance. Threads 0 .. threads-1 are the pool; `threads` is the
 * instance that loads and posts.
 * A pool thread calls v_worker(thread) in a loop: it waits on its mailbox, helps steps
 * that others lead, and returns to its host with a workspace index whenever it has led
 * a step to its end (the status is in the workspace's header), or -1 on v_stop. */
uint32_t v_stack_top(uint32_t thread);
int32_t v_worker(uint32_t thread);
void v_post(uint32_t thread, uint32_t ws, uint32_t rank, uint32_t ranks);
void v_stop(uint32_t thread);
/* The calling thread is rank 0 of a step whose other ranks have been posted. */
int32_t v_lead(uint32_t ws, uint32_t ranks);

#endif
