#include "kernels/attention/attention.h"

#include "kernels/attention/paged.h"

uint64_t v_attention_scratch(const v_program *p, const v_op_record *op) {
  (void)p;
  if (op->uints[V_ATTENTION_CACHE]) return v_paged_scratch(op);
  const uint64_t group = op->uints[V_ATTENTION_HEADS] / op->uints[V_ATTENTION_KV_HEADS];
  return sizeof(float) * ((uint64_t)(V_KEYS + V_QUERY_TILE) * op->uints[V_ATTENTION_HEAD_DIM] +
                          V_QUERY_TILE * V_KEYS + 2 * group * V_QUERY_CHUNK);
}

uint32_t v_attention_tiles(const v_task *t) {
  return t->ws->num_chunks * t->op->uints[V_ATTENTION_KV_HEADS];
}

static v_attention_scratch_parts scratch_parts(const v_task *t, uint32_t head_dim, uint32_t group) {
  v_attention_scratch_parts s;
  s.keys = (float *)(void *)t->scratch;
  s.queries = s.keys + (size_t)V_KEYS * head_dim;
  s.scores = s.queries + (size_t)V_QUERY_TILE * head_dim;
  s.max = s.scores + V_QUERY_TILE * V_KEYS;
  s.sum = s.max + (size_t)group * V_QUERY_CHUNK;
  return s;
}

static v_heads heads_of(const v_task *t, const v_seq *seq, uint32_t kv_head, uint32_t group) {
  const v_op_record *op = t->op;
  const uint32_t dim = op->uints[V_ATTENTION_HEAD_DIM];
  const size_t first = seq->first_token, head = (size_t)kv_head * group;
  v_heads h = {
      .q_stride = v_width(t, op->ins[V_ATTENTION_Q]),
      .k_stride = v_width(t, op->ins[V_ATTENTION_K]),
      .v_stride = v_width(t, op->ins[V_ATTENTION_V]),
      .out_stride = v_width(t, op->out),
      .head_dim = dim,
      .num_keys = seq->num_tokens,
      .window = op->uints[V_ATTENTION_WINDOW],
      .causal = op->flags & V_FLAG_CAUSAL,
      .scale = op->floats[V_ATTENTION_SCALE],
      .softcap = op->floats[V_ATTENTION_SOFTCAP],
      .bias = op->tensors[V_ATTENTION_BIAS] < 0 ? NULL : v_tensor(t, V_ATTENTION_BIAS),
      .first_head = kv_head * group,
  };
  h.q = v_in(t, V_ATTENTION_Q) + first * h.q_stride + op->uints[V_ATTENTION_Q_OFFSET] + head * dim;
  h.k = v_in(t, V_ATTENTION_K) + first * h.k_stride + op->uints[V_ATTENTION_K_OFFSET] +
        (size_t)kv_head * dim;
  h.v = v_in(t, V_ATTENTION_V) + first * h.v_stride + op->uints[V_ATTENTION_V_OFFSET] +
        (size_t)kv_head * dim;
  h.out = v_slot(t, op->out) + first * h.out_stride + head * dim;
  return h;
}

/* Divides by the sums. A query that saw no key gets zeros. */
static void finish(const v_heads *h, const v_attention_scratch_parts *s, uint32_t group,
                   const v_query_chunk *chunk) {
  for (uint32_t g = 0; g < group; g++) {
    for (uint32_t i = 0; i < chunk->num_queries; i++) {
      const float sum = s->sum[g * V_QUERY_CHUNK + i];
      const v128_t divisor = v_splat(sum == 0 ? 1.0f : sum);
      float *out = h->out + (chunk->first_query + i) * h->out_stride + (size_t)g * h->head_dim;
      V_FOR_COLUMNS(d, lanes, h->head_dim) {
        v_put(out + d, v_div(v_at(out + d, lanes), divisor), lanes);
      }
    }
  }
}

void v_attention_run(v_task *t, uint32_t tile) {
  if (t->op->uints[V_ATTENTION_CACHE]) {
    v_paged_run(t, tile);
    return;
  }
  const v_query_chunk *chunk = &t->ws->chunks[tile % t->ws->num_chunks];
  const uint32_t kv_head = tile / t->ws->num_chunks;
  const uint32_t group = t->op->uints[V_ATTENTION_HEADS] / t->op->uints[V_ATTENTION_KV_HEADS];
  const v_heads h = heads_of(t, &t->ws->seqs[chunk->seq], kv_head, group);
  const v_attention_scratch_parts s = scratch_parts(t, h.head_dim, group);
  for (uint32_t g = 0; g < group; g++) {
    for (uint32_t i = 0; i < chunk->num_queries; i++) {
      s.max[g * V_QUERY_CHUNK + i] = -__builtin_inff();
      s.sum[g * V_QUERY_CHUNK + i] = 0;
      v_zero_floats(h.out + (chunk->first_query + i) * h.out_stride + (size_t)g * h.head_dim,
                    h.head_dim);
    }
  }
  const uint32_t end = chunk->first_query + chunk->num_queries;
  for (uint32_t first_key = 0; first_key < h.num_keys; first_key += V_KEYS) {
    /* The first and last query bound what the chunk sees. */
    if (h.causal && first_key >= end) break;
    if (h.window && first_key >= end && first_key - end >= h.window) break;
    if (h.window && chunk->first_query >= first_key + V_KEYS &&
        chunk->first_query - first_key - V_KEYS + 1 >= h.window) {
      continue;
    }
    v_attention_pack_keys(&h, s.keys, first_key, v_min_u32(V_KEYS, h.num_keys - first_key));
    for (uint32_t g = 0; g < group; g++) {
      for (uint32_t i = 0; i < chunk->num_queries; i += V_QUERY_TILE) {
        v_attention_block(&h, &s, g, chunk->first_query + i,
                          v_min_u32(V_QUERY_TILE, chunk->num_queries - i), first_key,
                          s.max + g * V_QUERY_CHUNK + i, s.sum + g * V_QUERY_CHUNK + i);
      }
    }
  }
  finish(&h, &s, group, chunk);
}
