/* The ABI between the wasm module and its host (docs/design.md, "The wasm ABI").
 *
 * Life of a model: instantiate with one imported memory `env.memory` (shared in the
 * threads builds) -> v_alloc a buffer, copy program.bin into it -> v_create ->
 * v_write_rows for every tensor -> v_seal -> fill a workspace's inputs -> v_run.
 * A program with CACHE ops (a decoder) also takes one v_cache between v_create
 * and v_seal. Memory grows only inside v_alloc, v_create and v_cache; never after v_seal.
 * The memory's maximum, where it has one, is at most 65535 pages: the last page of the
 * 4 GiB is never used. Pointers are u32 byte offsets; hosts read them with `>>> 0`.
 * Calls that can fail return a negative `v_error`; v_detail(0..1) then says more.
 */
#ifndef VOLERY_H
#define VOLERY_H
#include <stdint.h>

#define V_ABI_VERSION 2

typedef enum {
  V_OK = 0,
  V_BAD_PROGRAM = -1,  /* detail 0: op index or -1, detail 1: rule number */
  V_UNSUPPORTED = -2,  /* detail 0: op index, detail 1: the unknown kind or format */
  V_NO_MEMORY = -3,    /* detail 0: bytes asked for (low), detail 1: (high) */
  V_BAD_CALL = -4,     /* arguments out of range or out of order; detail 0: which */
  V_INCOMPLETE = -5,   /* v_seal with rows missing; detail 0: tensor index */
  V_BAD_STEP = -6,     /* detail 0: v_step_fault, detail 1: token or sequence index */
  V_ABANDONED = -7,    /* a rank of the step died; the workspace is lost */
} v_error;

typedef enum {
  V_STEP_COUNTS = 1,   /* no tokens or sequences, or more than the limits */
  V_STEP_TOKEN = 2,    /* a token id outside the vocabulary */
  V_STEP_ROWS = 3,     /* rows do not tile the tokens, or an empty row */
  V_STEP_POSITION = 4, /* context_len + num_tokens passes max_positions */
  /* Decoders: */
  V_STEP_WANTED = 5, /* wanted rows not ascending, or not rows of the step; detail 1: which */
  V_STEP_BLOCKS = 6, /* a block table passes its pool, names a block that does not exist, or
                        two rows write one block; detail 1: the sequence */
  V_STEP_COPIES = 7, /* a block that does not exist, is written twice or read after it was
                        written; detail 1: which copy */
  V_STEP_SAMPLE = 8, /* a number out of range, or data outside its pool; detail 1: the row */
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
/* Decoders only: allocates the paged key-value cache of every layer and the workspaces'
 * further parts. `kv_blocks`: blocks of 32 tokens, at least 1; `format`: a v_cache_format; `max_wanted`: most wanted rows in a step, at least 1 (more than
 * max_tokens count as those);
 * `data_words`: size of V_WS_SAMPLE_DATA in words. Once; V_NO_MEMORY leaves it to be tried
 * again with smaller numbers. */
int32_t v_cache(uint32_t kv_blocks, uint32_t format, uint32_t max_wanted, uint32_t data_words);
int32_t v_seal(void);
/* SHA-256 of `blocks` blocks of 64 bytes at `data`, into the 8 words at `state`, which start
 * as FIPS 180-4 says; the host pads. Needs no model: any instance can do it at any time. */
void v_sha256(uint32_t state, uint32_t data, uint32_t blocks);
uint64_t v_memory_bytes(uint32_t which); /* 0: weights, 1: workspaces, 2: all, 3: the cache */

/* How the cache stores keys and values. F16 rounds to nearest, ties to even, when a token
 * is written; what passes 65504 becomes infinite. */
typedef enum {
  V_CACHE_F32 = 0,
  V_CACHE_F16 = 1,
} v_cache_format;

/* A workspace's parts. Those from V_WS_TABLES on exist in decoders, after v_cache. */
typedef enum {
  V_WS_HEADER = 0, /* u32: num_tokens, num_seqs (host writes); i32 status, u32 detail[2];
                      decoders, host writes: u32 num_wanted, num_copies, sampling (0: the
                      wanted rows' logits are the output, 1: they are sampled) */
  V_WS_TOKENS = 1, /* i32[max_tokens] */
  V_WS_SEQS = 2,   /* per sequence u32: first_token, num_tokens, context_len, pool_skip */
  V_WS_OUTPUT = 3, /* f32[rows][width] of the program's output slot; undefined when the
                      step samples */
  V_WS_STATUS = 4, /* u8[max_seqs]: 0 ok, 1 not finite */
  V_WS_TABLES = 5, /* u32[max_seqs]: where each sequence's block table starts in
                      V_WS_BLOCKS; it has ceil((context_len + num_tokens) / 32) entries */
  V_WS_BLOCKS = 6, /* u32: block tables, anywhere and in any order; room for max_seqs
                      tables of min(kv_blocks, ceil(max_positions / 32)) entries */
  V_WS_COPIES = 7, /* u32[kv_blocks][2]: from, to: blocks copied before anything else */
  V_WS_WANTED = 8, /* u32[max_wanted]: token indices, ascending */
  V_WS_SAMPLE = 9, /* v_sample_row[max_wanted] */
  V_WS_SAMPLE_DATA = 10, /* u32[data_words]: what sample rows point into */
  V_WS_SAMPLED = 11,     /* v_sampled[max_wanted] */
} v_ws_part;
uint32_t v_workspace(uint32_t ws, uint32_t part);
uint32_t v_part_bytes(uint32_t part); /* size of a part; 0 where there is none */

/* SamplingRow of runtime_py/executors/base.py; docs/design.md 7.2 has the arithmetic.
 * `*_at` are word indices in V_WS_SAMPLE_DATA, `*_count` numbers of entries: a penalized
 * entry is 3 words (token id, occurrences in the prompt, in the output), a bias entry 2
 * (token id, f32), the mask ceil(vocabulary / 32) words. */
typedef struct {
  float temperature; /* 0, or 1e-6 .. 1e6 */
  uint32_t top_k;    /* 0 = all */
  float top_p;       /* above 0, at most 1 */
  float min_p;       /* 0 .. 1 */
  float repetition;  /* 1e-3 .. 1e3 */
  float presence, frequency; /* -1e3 .. 1e3 */
  uint32_t top_logprobs;     /* at most V_MAX_TOP */
  uint32_t seed_low, seed_high, position;
  uint32_t penalized_at, penalized_count;
  uint32_t bias_at, bias_count;
  uint32_t mask_at; /* V_NO_MASK = every token is allowed */
} v_sample_row;
#define V_NO_MASK 0xffffffffu
#define V_MAX_TOP 20

typedef struct {
  int32_t token; /* -1: the logits were not finite */
  float logprob;
  uint32_t num_top, zero;
  struct {
    int32_t token;
    float logprob;
  } top[V_MAX_TOP];
} v_sampled;

_Static_assert(sizeof(v_sample_row) == 64, "sample row");
_Static_assert(sizeof(v_sampled) == 176, "sampled record");

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
/* A rank of the step in `ws` trapped or its thread ended: from any instance, says so to the
 * others, which would wait for it for ever. Whoever leads the step gets V_ABANDONED, as
 * does every later one in `ws`; pool threads go back to their mailboxes. What the step was
 * writing is undefined: a host gives up the model. */
void v_abandon(uint32_t ws);

#endif
