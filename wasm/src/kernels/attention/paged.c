#include "kernels/attention/paged.h"

#include "core/half.h"

_Static_assert(V_KEYS == V_KV_BLOCK, "a block of keys is a block of the cache");

#define ROW_TILE 4

/* One chunk of queries by one key/value head. */
typedef struct {
  v_heads h;
  uint32_t group;          /* heads that share the keys */
  uint32_t first, rows;    /* position of the first query; (query, head) pairs */
  const float *keys;       /* the block's, [head_dim][32] */
  const float *values;     /* [32][head_dim] */
  /* The thread's scratch. */
  float *queries;          /* [rows / 4][head_dim][4] */
  float *scores;           /* [4][32] */
  float *max, *sum;        /* [rows] */
  float *wide;             /* f16 caches: room for keys and values in f32 */
} v_paged;

static uint64_t most_rows(const v_op_record *op) {
  return (uint64_t)op->uints[V_ATTENTION_HEADS] / op->uints[V_ATTENTION_KV_HEADS] * V_QUERY_CHUNK;
}

uint64_t v_paged_scratch(const v_op_record *op) {
  const uint64_t rows = most_rows(op), dim = op->uints[V_ATTENTION_HEAD_DIM];
  return sizeof(float) * (rows * dim + ROW_TILE * V_KEYS + 2 * rows + 2 * V_KEYS * dim);
}

static v_paged paged_of(const v_task *t, const v_query_chunk *chunk, uint32_t kv_head) {
  const v_op_record *op = t->op;
  const v_seq *seq = &t->ws->seqs[chunk->seq];
  const uint32_t dim = op->uints[V_ATTENTION_HEAD_DIM];
  const uint32_t group = op->uints[V_ATTENTION_HEADS] / op->uints[V_ATTENTION_KV_HEADS];
  const size_t first = (size_t)seq->first_token + chunk->first_query;
  v_paged p = {
      .h = {.q_stride = v_width(t, op->ins[V_ATTENTION_Q]),
            .out_stride = v_width(t, op->out),
            .head_dim = dim,
            .num_keys = seq->context_len + seq->num_tokens,
            .window = op->uints[V_ATTENTION_WINDOW],
            .causal = true,
            .scale = op->floats[V_ATTENTION_SCALE],
            .softcap = op->floats[V_ATTENTION_SOFTCAP],
            .bias = op->tensors[V_ATTENTION_BIAS] < 0 ? NULL : v_tensor(t, V_ATTENTION_BIAS),
            .first_head = kv_head * group},
      .group = group,
      .first = seq->context_len + chunk->first_query,
      .rows = chunk->num_queries * group,
  };
  p.h.q = v_in(t, V_ATTENTION_Q) + first * p.h.q_stride + op->uints[V_ATTENTION_Q_OFFSET] +
          (size_t)p.h.first_head * dim;
  p.h.out = v_slot(t, op->out) + first * p.h.out_stride + (size_t)p.h.first_head * dim;
  const size_t rows = (size_t)most_rows(op);
  p.queries = (float *)(void *)t->scratch;
  p.scores = p.queries + rows * dim;
  p.max = p.scores + ROW_TILE * V_KEYS;
  p.sum = p.max + rows;
  p.wide = p.sum + rows;
  return p;
}

static const float *query_of(const v_paged *p, uint32_t row) {
  return p->h.q + row / p->group * p->h.q_stride + (size_t)(row % p->group) * p->h.head_dim;
}
static float *out_of(const v_paged *p, uint32_t row) {
  return p->h.out + row / p->group * p->h.out_stride + (size_t)(row % p->group) * p->h.head_dim;
}

/* Up to four rows side by side; the output starts at zero. */
static void prepare_rows(const v_paged *p) {
  const uint32_t dim = p->h.head_dim;
  for (uint32_t row = 0; row < p->rows; row++) {
    const float *q = query_of(p, row);
    float *to = p->queries + (size_t)(row / ROW_TILE) * dim * ROW_TILE + row % ROW_TILE;
    for (uint32_t d = 0; d < dim; d++) to[d * ROW_TILE] = q[d];
    v_zero_floats(out_of(p, row), dim);
    p->max[row] = -__builtin_inff();
    p->sum[row] = 0;
  }
}

static void widen(float *to, const uint8_t *from, uint32_t n) {
  for (uint32_t i = 0; i < n; i += 4) v_store(to + i, v_any_f16x4_to_f32x4(from + 2 * (size_t)i));
}

static void load_block(v_paged *p, const v_kv_layer *layer, const uint8_t *head, bool half) {
  const uint8_t *values = head + layer->head_bytes / 2;
  if (half) {
    const uint32_t n = V_KEYS * p->h.head_dim;
    widen(p->wide, head, n);
    widen(p->wide + n, values, n);
    p->keys = p->wide;
    p->values = p->wide + n;
  } else {
    p->keys = (const float *)(const void *)head;
    p->values = (const float *)(const void *)values;
  }
}

/* q.k of `rows` rows and `vectors` times 4 keys, scaled. */
V_INLINE void score_keys(const uint32_t rows, const uint32_t vectors, const float *q,
                         const float *keys, uint32_t dim, float scale, float *scores) {
  v128_t dot[8];
  V_UNROLL for (uint32_t i = 0; i < rows * vectors; i++) dot[i] = V_F32(0);
  V_KEEP_LOOP for (; dim > 0; dim--, q += ROW_TILE, keys += V_KEYS) {
    V_BASE(q);
    V_BASE(keys);
    v128_t x[ROW_TILE];
    V_UNROLL for (uint32_t r = 0; r < rows; r++) x[r] = wasm_v128_load32_splat(q + r);
    V_UNROLL for (uint32_t v = 0; v < vectors; v++) {
      const v128_t k = v_load(keys + 4 * v);
      V_UNROLL for (uint32_t r = 0; r < rows; r++) {
        dot[r * vectors + v] = v_muladd(x[r], k, dot[r * vectors + v]);
      }
    }
  }
  const v128_t factor = v_splat(scale);
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    V_UNROLL for (uint32_t v = 0; v < vectors; v++) {
      v_store(scores + r * V_KEYS + 4 * v, v_mul(dot[r * vectors + v], factor));
    }
  }
}

/* out = out * shrink + weights . v for `rows` rows and `vectors` times 4 columns. */
V_INLINE void add_columns(const uint32_t rows, const uint32_t vectors, const float *weight,
                          const float *v, size_t v_stride, uint32_t keys, float *const *out,
                          uint32_t d, const float *shrink) {
  v128_t acc[8];
  V_UNROLL for (uint32_t i = 0; i < rows * vectors; i++) acc[i] = V_F32(0);
  V_KEEP_LOOP for (; keys > 0; keys--, v += v_stride, weight++) {
    V_BASE(v);
    V_BASE(weight);
    v128_t w[ROW_TILE];
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      w[r] = wasm_v128_load32_splat(weight + r * V_KEYS);
    }
    V_UNROLL for (uint32_t i = 0; i < vectors; i++) {
      const v128_t x = v_load(v + 4 * i);
      V_UNROLL for (uint32_t r = 0; r < rows; r++) {
        acc[r * vectors + i] = v_muladd(w[r], x, acc[r * vectors + i]);
      }
    }
  }
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    const v128_t f = v_splat(shrink[r]);
    V_UNROLL for (uint32_t i = 0; i < vectors; i++) {
      float *o = out[r] + d + 4 * i;
      v_store(o, v_muladd(v_load(o), f, acc[r * vectors + i]));
    }
  }
}

V_INLINE void add_values(const uint32_t rows, const uint32_t vectors, const v_paged *p,
                         uint32_t keys, float *const *out, const float *shrink) {
  const uint32_t dim = p->h.head_dim;
  uint32_t d = 0;
  for (; d + 4 * vectors <= dim; d += 4 * vectors) {
    add_columns(rows, vectors, p->scores, p->values + d, dim, keys, out, d, shrink);
  }
  for (; d + 4 <= dim; d += 4) {
    add_columns(rows, 1, p->scores, p->values + d, dim, keys, out, d, shrink);
  }
  for (; d < dim; d++) {
    for (uint32_t r = 0; r < rows; r++) {
      float acc = 0;
      for (uint32_t j = 0; j < keys; j++) {
        acc = p->scores[r * V_KEYS + j] * p->values[(size_t)j * dim + d] + acc;
      }
      out[r][d] = out[r][d] * shrink[r] + acc;
    }
  }
}

/* Takes the block into `rows` rows from `row` on; `vectors` keeps rows * vectors <= 8, what
 * V8 has registers for. */
V_INLINE void take_block(const uint32_t rows, const uint32_t vectors, const v_paged *p,
                         uint32_t row, uint32_t first_key) {
  const uint32_t last = p->first + (row + rows - 1) / p->group;
  if (last < first_key) return; /* no row of the tile sees the block */
  const uint32_t keys = v_min_u32(V_KEYS, last + 1 - first_key);
  const uint32_t columns = (uint32_t)v_round_up(keys, V_KEY_GROUP);
  const float *q = p->queries + (size_t)(row / ROW_TILE) * p->h.head_dim * ROW_TILE;
  for (uint32_t c = 0; c < columns; c += 4 * vectors) {
    score_keys(rows, vectors, q, p->keys + c, p->h.head_dim, p->h.scale, p->scores + c);
  }
  float shrink[ROW_TILE];
  float *out[ROW_TILE];
  for (uint32_t r = 0; r < rows; r++) {
    const uint32_t at = row + r;
    out[r] = out_of(p, at);
    v_attention_adjust(&p->h, p->scores + r * V_KEYS, columns, p->h.first_head + at % p->group,
                       p->first + at / p->group, first_key);
  }
  v_attention_softmax(rows, p->scores, columns, p->max + row, p->sum + row, shrink);
  add_values(rows, vectors, p, keys, out, shrink);
}

static void take_rows(const v_paged *p, uint32_t row, uint32_t first_key) {
  switch (p->rows - row) {
    case 1: take_block(1, 8, p, row, first_key); break;
    case 2: take_block(2, 4, p, row, first_key); break;
    case 3: take_block(3, 2, p, row, first_key); break;
    default: take_block(4, 2, p, row, first_key); break;
  }
}

static void finish(const v_paged *p) {
  for (uint32_t row = 0; row < p->rows; row++) {
    const float sum = p->sum[row];
    const v128_t divisor = v_splat(sum == 0 ? 1.0f : sum);
    float *out = out_of(p, row);
    V_FOR_COLUMNS(d, lanes, p->h.head_dim) {
      v_put(out + d, v_div(v_at(out + d, lanes), divisor), lanes);
    }
  }
}

void v_paged_run(v_task *t, uint32_t tile) {
  const v_query_chunk *chunk = &t->ws->chunks[tile % t->ws->num_chunks];
  const uint32_t kv_head = tile / t->ws->num_chunks;
  const v_kv_layer *layer = v_layer(t);
  const uint32_t *table = t->ws->gen.blocks + t->ws->gen.tables[chunk->seq];
  const bool half = t->model->cache_format == V_CACHE_F16;
  v_paged p = paged_of(t, chunk, kv_head);
  prepare_rows(&p);
  const uint32_t end = p.first + chunk->num_queries;
  /* The block of the first key that the first query sees. */
  const uint32_t window = p.h.window;
  uint32_t block = window && p.first >= window ? (p.first - window + 1) / V_KEYS : 0;
  for (; block * V_KEYS < end; block++) {
    load_block(&p, layer,
               layer->data + (size_t)table[block] * layer->block_bytes +
                   (size_t)kv_head * layer->head_bytes,
               half);
    for (uint32_t row = 0; row < p.rows; row += ROW_TILE) take_rows(&p, row, block * V_KEYS);
  }
  finish(&p);
}
