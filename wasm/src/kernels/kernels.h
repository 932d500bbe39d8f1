/* What the executor knows of a kernel family: how many independent tiles an op has in
 * this step, how to run one, and how much scratch a thread needs for it.
 *
 * A tile writes its own rows or columns of the op's output and nothing else but its
 * thread's scratch. Which thread runs a tile, and how an op is cut into tiles, never
 * changes a result's bits. */
#ifndef VOLERY_KERNELS_H
#define VOLERY_KERNELS_H
#include "core/model.h"

typedef struct {
  const v_model *model;
  const v_arena *ws;
  const v_op_record *op;
  uint8_t *scratch;    /* this thread's */
  uint32_t prepared;   /* linear: 1 + the row panel whose activations scratch holds */
  uint32_t ranks;      /* threads in the step */
  uint32_t num_tokens, num_seqs, num_wanted;
} v_task;

V_INLINE float *v_slot(const v_task *t, int32_t slot) { return t->ws->slots[slot]; }
V_INLINE uint32_t v_width(const v_task *t, int32_t slot) {
  return t->model->program.slots[slot].width;
}
V_INLINE const float *v_in(const v_task *t, uint32_t i) { return v_slot(t, t->op->ins[i]); }
V_INLINE const v_weight *v_tensor(const v_task *t, uint32_t i) {
  return &t->model->weights[t->op->tensors[i]];
}
/* An optional f32 vector, or NULL. */
V_INLINE const float *v_vector(const v_task *t, uint32_t i) {
  return t->op->tensors[i] < 0 ? NULL : (const float *)(const void *)v_tensor(t, i)->data;
}
/* Rows of the op's output in this step. */
V_INLINE uint32_t v_out_rows(const v_task *t) {
  switch ((v_rows)t->model->program.slots[t->op->out].rows) {
    case V_ROWS_TOKENS: return t->num_tokens;
    case V_ROWS_SEQS: return t->num_seqs;
    case V_ROWS_PICKED: return t->num_wanted;
  }
  return 0;
}
/* The cache layer that a CACHE op writes or an ATTENTION op reads, or NULL. */
V_INLINE const v_kv_layer *v_layer(const v_task *t) {
  const v_model *m = t->model;
  return m->is_decoder ? m->layer_of[t->op - m->program.ops] : NULL;
}

/* The cut of ops that work row by row. */
#define V_ROWS_PER_TILE 16
V_INLINE uint32_t v_row_tiles(const v_task *t) {
  return v_ceil_div(v_out_rows(t), V_ROWS_PER_TILE);
}
V_INLINE uint32_t v_tile_end(const v_task *t, uint32_t tile) {
  return v_min_u32((tile + 1) * V_ROWS_PER_TILE, v_out_rows(t));
}

void v_embed_run(v_task *t, uint32_t tile);
void v_norm_run(v_task *t, uint32_t tile);
void v_glu_run(v_task *t, uint32_t tile);
void v_rope_run(v_task *t, uint32_t tile);
void v_normalize_run(v_task *t, uint32_t tile);
void v_unary_run(v_task *t, uint32_t tile);
void v_binary_run(v_task *t, uint32_t tile);
void v_rows_run(v_task *t, uint32_t tile);

/* The step's keys and values into the cache, and copies of whole blocks. */
uint32_t v_cache_tiles(const v_task *t);
void v_cache_run(v_task *t, uint32_t tile);
uint32_t v_copy_tiles(const v_task *t);
void v_copy_run(v_task *t, uint32_t tile);

uint32_t v_linear_tiles(const v_task *t);
void v_linear_run(v_task *t, uint32_t tile);
uint64_t v_linear_scratch(const v_program *p, const v_op_record *op);

/* Queries that share one packing of the keys. */
#define V_QUERY_CHUNK 64
uint32_t v_attention_tiles(const v_task *t);
void v_attention_run(v_task *t, uint32_t tile);
uint64_t v_attention_scratch(const v_program *p, const v_op_record *op);

uint32_t v_pool_tiles(const v_task *t);
void v_pool_run(v_task *t, uint32_t tile);

/* Writes the status of the sequences of one tile: whether their output is finite. */
uint32_t v_finite_tiles(const v_task *t);
void v_finite_run(v_task *t, uint32_t tile);
bool v_all_finite(const float *x, size_t n);

/* The same for a decoder, whose wanted rows it samples when the step asks for it. */
uint32_t v_sample_tiles(const v_task *t);
void v_sample_run(v_task *t, uint32_t tile);
uint64_t v_sample_scratch(const v_program *p);

#endif
