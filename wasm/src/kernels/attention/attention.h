/* Attention over ragged sequences in f32.
 *
 * A tile is a chunk of one sequence's queries by one key/value head. Keys are walked in
 * blocks of 32 that start at multiples of 32, with the online softmax of Milakov and
 * Gimelshein (2018): after every block the running maximum m, the sum l and the output
 * are rescaled. A query's arithmetic depends on its own sequence only: every block
 * contributes a sum over its keys in ascending order, masked keys add +0, and a block
 * that is masked as a whole changes nothing, so it may be skipped or not. */
#ifndef VOLERY_ATTENTION_H
#define VOLERY_ATTENTION_H
#include "kernels/kernels.h"
#include "math/exponential.h"

#define V_KEYS 32         /* keys in a block */
#define V_KEY_GROUP 8     /* keys side by side in the packed block */
#define V_QUERY_TILE 4

/* Everything about one (op, sequence, head group) that the inner loops need. */
typedef struct {
  const float *q, *k, *v; /* token 0 of the sequence, first head of the group */
  float *out;
  size_t q_stride, k_stride, v_stride, out_stride; /* floats from token to token */
  uint32_t head_dim;
  uint32_t num_keys;      /* tokens of the sequence */
  uint32_t window;        /* 0 = unlimited */
  bool causal;
  float scale, softcap;
  const v_weight *bias;   /* [heads, 2R - 1], column R - 1 is distance 0; or NULL */
  uint32_t first_head;    /* number of the group's first head */
} v_heads;

/* The thread's scratch. */
typedef struct {
  float *keys;    /* [V_KEYS / 8][head_dim][8] */
  float *queries; /* [head_dim][V_QUERY_TILE] */
  float *scores; /* [V_QUERY_TILE][V_KEYS] */
  float *max, *sum; /* [heads in the group][V_QUERY_CHUNK] */
} v_attention_scratch_parts;

/* Transposes keys first .. first + count - 1 into s->keys; the last four are
 * padded with zeros. */
void v_attention_pack_keys(const v_heads *h, float *packed, uint32_t first, uint32_t count);

/* Takes block `first_key` into the output of `rows` (1 to 4) queries from `query` on of
 * the group's head number `head`; max and sum point at the first query's entries. */
void v_attention_block(const v_heads *h, const v_attention_scratch_parts *s, uint32_t head,
                       uint32_t query, uint32_t rows, uint32_t first_key, float *max, float *sum);

/* What `columns` scaled scores of query number `query` of head `head` need beyond the scale:
 * soft cap, bias and mask. */
void v_attention_adjust(const v_heads *h, float *scores, uint32_t columns, uint32_t head,
                        uint32_t query, uint32_t first_key);

/* Turns `columns` scores of each of `rows` (1 to 4) rows, V_KEYS apart, into weights and
 * updates their running maxima and sums; shrink[4] gets the factors by which the earlier
 * outputs shrink. A row's bits do not depend on the others. */
void v_attention_softmax(uint32_t rows, float *scores, uint32_t columns, float *max, float *sum,
                         float *shrink);

#endif
