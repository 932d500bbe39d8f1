/* The state of the module. One module holds one model; in the threads builds all
 * instances share it, because globals live in the shared memory. */
#ifndef VOLERY_MODEL_H
#define VOLERY_MODEL_H
#include "core/base.h"
#include "program.h"
#include "volery.h"

typedef struct {
  const v_program_header *header;
  const v_slot_record *slots;
  const v_tensor_record *tensors;
  const v_op_record *ops;
  uint32_t num_slots, num_tensors, num_ops;
} v_program;

/* How a tensor lies in memory. Panels hold 8 output columns of a linear layer side by
 * side (kernels/linear/layout.h); rows are as stored. */
typedef enum { V_LAYOUT_UNUSED, V_LAYOUT_ROWS, V_LAYOUT_PANELS } v_layout;

typedef struct {
  v_layout layout;
  v_format format;
  uint32_t rows, cols; /* shape[0], product of the other dimensions */
  uint8_t *data;
  float *row_scale;       /* I8R: one per row */
  uint64_t row_bytes;     /* V_LAYOUT_ROWS: bytes from row to row */
  uint64_t panel_bytes;   /* V_LAYOUT_PANELS: bytes from panel to panel */
  uint8_t *written;       /* a bit per 8 rows */
  uint32_t groups_missing; /* groups of 8 rows not written yet */
} v_weight;

/* One layer of the paged key-value cache. Per block and key/value head: the keys,
 * transposed [head_dim][32], then the values [32][head_dim]. */
typedef struct {
  uint32_t layer, kv_heads, head_dim;
  uint32_t head_bytes, block_bytes;
  uint8_t *data;
} v_kv_layer;

typedef struct {
  uint32_t first_token, num_tokens, context_len, pool_skip;
} v_seq;

typedef struct {
  uint32_t from, to;
} v_block_copy;

typedef struct {
  uint32_t num_tokens, num_seqs; /* host writes */
  int32_t status;
  uint32_t detail[2];
  uint32_t num_wanted, num_copies, sampling; /* host writes */
} v_step_header;

/* A run of queries of one sequence: the unit of attention's tiles. */
typedef struct {
  uint32_t seq, first_query, num_queries;
} v_query_chunk;

/* What a workspace of a decoder has besides. */
typedef struct {
  uint32_t num_wanted, num_copies; /* the header's, once they have been checked */
  bool sampling;
  uint32_t *tables;       /* per sequence: its table's first entry in blocks */
  uint32_t *blocks;
  v_block_copy *copies;
  uint32_t *wanted;
  v_sample_row *rows;
  uint32_t *data;         /* what rows point into */
  v_sampled *sampled;
  uint32_t *places;       /* per token: block * 32 + offset; filled at the start of a step */
  uint32_t *first_wanted; /* per sequence and one more; filled at the start of a step */
  uint8_t *marks;         /* a byte per block, for the checks */
} v_generation;

/* A workspace: the inputs, outputs and intermediate values of one step in flight. */
typedef struct {
  v_step_header *header;
  v_generation gen;
  uint32_t num_tokens, num_seqs; /* the header's, once they have been checked */
  int32_t fault;                 /* of the step's inputs; V_OK when they are good */
  int32_t *tokens;
  v_seq *seqs;
  uint8_t *status;
  float **slots;          /* one buffer per slot of the program */
  uint32_t *positions;    /* per token, filled at the start of a step */
  v_query_chunk *chunks;  /* filled at the start of a step */
  uint32_t num_chunks;
  uint32_t *next_tile;    /* per op, one for the copies, one for the end of the step */
  uint8_t *scratch;       /* threads x scratch_bytes */
  uint32_t arrived, generation; /* barrier */
  uint32_t abandoned;           /* a rank died: nobody waits in the barrier any more */
} v_arena;

/* A pool thread's mailbox. `signal` is a futex: bit 0 a step waits, bit 1 stop. */
typedef struct {
  uint32_t signal, ws, rank, ranks;
} v_mailbox;

typedef enum { V_STATE_EMPTY, V_STATE_LOADING, V_STATE_SEALED } v_state;

typedef struct {
  v_state state;
  v_program program;
  v_weight *weights;
  v_arena *workspaces;
  v_mailbox *mailboxes;
  uint8_t *stacks;
  uint32_t max_tokens, max_seqs, num_workspaces, num_threads;
  uint32_t scratch_bytes; /* per thread of a workspace */
  uint32_t signed_dot;    /* kernels/linear/signed_dot.h */
  uint64_t weight_bytes, workspace_bytes, cache_bytes;
  /* Decoders: */
  bool is_decoder, has_cache; /* it needs v_cache; v_cache was called */
  uint32_t num_layers;        /* CACHE ops */
  v_kv_layer *layers;
  v_kv_layer **layer_of;      /* per op: the layer it writes or reads, or NULL */
  v_cache_format cache_format;
  uint32_t kv_blocks, table_blocks, max_wanted, data_words;
  uint32_t detail[2];
} v_model;

extern v_model v_the_model;

/* Records what went wrong for v_detail and returns `error`. */
V_INLINE int32_t v_fail(v_error error, uint32_t detail0, uint32_t detail1) {
  v_the_model.detail[0] = detail0;
  v_the_model.detail[1] = detail1;
  return error;
}

#endif
