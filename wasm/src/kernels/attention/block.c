#include "kernels/attention/attention.h"

typedef struct {
  v128_t lo, hi;
} v_eight;

/* A 4 x 4 block, `from_stride` floats from row to row, to columns `to_stride` apart. */
V_INLINE void transpose_4x4(const float *from, size_t from_stride, float *to,
                            const size_t to_stride) {
  v128_t a = v_load(from), b = v_load(from + from_stride);
  v128_t c = v_load(from + 2 * from_stride), d = v_load(from + 3 * from_stride);
  v128_t ab0 = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), ab1 = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
  v128_t cd0 = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), cd1 = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
  v_store(to, wasm_i64x2_shuffle(ab0, cd0, 0, 2));
  v_store(to + to_stride, wasm_i64x2_shuffle(ab0, cd0, 1, 3));
  v_store(to + 2 * to_stride, wasm_i64x2_shuffle(ab1, cd1, 0, 2));
  v_store(to + 3 * to_stride, wasm_i64x2_shuffle(ab1, cd1, 1, 3));
}

/* The transpose of up to four rows of `n` floats: column c of row r goes to
 * to[c * to_stride + r]; missing rows become zeros. */
V_INLINE void transpose_rows(const float *from, size_t from_stride, uint32_t rows, uint32_t n,
                             float *to, const size_t to_stride) {
  uint32_t c = 0;
  if (rows == 4) {
    for (; c + 4 <= n; c += 4) transpose_4x4(from + c, from_stride, to + c * to_stride, to_stride);
  }
  for (; c < n; c++) {
    for (uint32_t r = 0; r < 4; r++) {
      to[c * to_stride + r] = r < rows ? from[r * from_stride + c] : 0.0f;
    }
  }
}

void v_attention_pack_keys(const v_heads *h, float *packed, uint32_t first, uint32_t count) {
  for (uint32_t j = 0; j < count; j += 4) {
    transpose_rows(h->k + (first + j) * h->k_stride, h->k_stride, v_min_u32(4, count - j),
                   h->head_dim, packed + (size_t)(j & ~7u) * h->head_dim + j % V_KEY_GROUP,
                   V_KEY_GROUP);
  }
}

/* q.k of `rows` queries and `vectors` (1 or 2) x 4 keys of a group, scaled, to rows of
 * scores. */
V_INLINE void score_group(const uint32_t rows, const uint32_t vectors, const float *q,
                          const float *keys, uint32_t dim, float scale, float *scores) {
  v128_t dot[V_QUERY_TILE][2];
  V_UNROLL for (uint32_t r = 0; r < rows; r++) dot[r][0] = dot[r][1] = V_F32(0);
  V_KEEP_LOOP for (; dim > 0; dim--, q += V_QUERY_TILE, keys += V_KEY_GROUP) {
    V_BASE(q);
    V_BASE(keys);
    v128_t k[2];
    V_UNROLL for (uint32_t i = 0; i < vectors; i++) k[i] = v_load(keys + 4 * i);
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      const v128_t x = wasm_v128_load32_splat(q + r);
      V_UNROLL for (uint32_t i = 0; i < vectors; i++) dot[r][i] = v_muladd(x, k[i], dot[r][i]);
    }
  }
  const v128_t factor = v_splat(scale);
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    V_UNROLL for (uint32_t i = 0; i < vectors; i++) {
      v_store(scores + r * V_KEYS + 4 * i, v_mul(dot[r][i], factor));
    }
  }
}

/* out = out * shrink + weights . v for `rows` queries. */
V_INLINE void add_values(const uint32_t rows, const v_heads *h, const float *scores, const float *v,
                         uint32_t keys, float *out, const float *shrink) {
  uint32_t d = 0;
  for (; d + 8 <= h->head_dim; d += 8) {
    v_eight acc[V_QUERY_TILE];
    V_UNROLL for (uint32_t r = 0; r < rows; r++) acc[r] = (v_eight){V_F32(0), V_F32(0)};
    const float *from = v + d, *weight = scores;
    V_KEEP_LOOP for (uint32_t j = keys; j > 0; j--, from += h->v_stride, weight++) {
      V_BASE(from);
      V_BASE(weight);
      const v128_t v0 = v_load(from), v1 = v_load(from + 4);
      V_UNROLL for (uint32_t r = 0; r < rows; r++) {
        const v128_t w = wasm_v128_load32_splat(weight + r * V_KEYS);
        acc[r].lo = v_muladd(w, v0, acc[r].lo);
        acc[r].hi = v_muladd(w, v1, acc[r].hi);
      }
    }
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      float *o = out + r * h->out_stride + d;
      const v128_t f = v_splat(shrink[r]);
      v_store(o, v_muladd(v_load(o), f, acc[r].lo));
      v_store(o + 4, v_muladd(v_load(o + 4), f, acc[r].hi));
    }
  }
  for (; d < h->head_dim; d += 4) {
    const uint32_t lanes = v_min_u32(4, h->head_dim - d);
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      v128_t acc = V_F32(0);
      for (uint32_t j = 0; j < keys; j++) {
        acc = v_muladd(v_splat(scores[r * V_KEYS + j]), v_at(v + j * h->v_stride + d, lanes), acc);
      }
      float *o = out + r * h->out_stride + d;
      v_put(o, v_muladd(v_at(o, lanes), v_splat(shrink[r]), acc), lanes);
    }
  }
}

V_INLINE void block(const uint32_t rows, const v_heads *h, const v_attention_scratch_parts *s,
                    uint32_t head, uint32_t query, uint32_t first_key, float *max, float *sum) {
  const uint32_t keys = v_min_u32(V_KEYS, h->num_keys - first_key);
  const uint32_t columns = (uint32_t)v_round_up(keys, 4);
  const float *q = h->q + query * h->q_stride + (size_t)head * h->head_dim;
  float *out = h->out + query * h->out_stride + (size_t)head * h->head_dim;
  transpose_rows(q, h->q_stride, rows, h->head_dim, s->queries, V_QUERY_TILE);
  uint32_t c = 0;
  for (; c + V_KEY_GROUP <= columns; c += V_KEY_GROUP) {
    score_group(rows, 2, s->queries, s->keys + (size_t)c * h->head_dim, h->head_dim, h->scale,
                s->scores + c);
  }
  if (c < columns) {
    score_group(rows, 1, s->queries, s->keys + (size_t)c * h->head_dim, h->head_dim, h->scale,
                s->scores + c);
  }
  for (uint32_t r = 0; r < rows; r++) {
    v_attention_adjust(h, s->scores + r * V_KEYS, columns, h->first_head + head, query + r,
                       first_key);
  }
  float shrink[V_QUERY_TILE];
  v_attention_softmax(rows, s->scores, columns, max, sum, shrink);
  add_values(rows, h, s->scores, h->v + first_key * h->v_stride, keys, out, shrink);
}

void v_attention_block(const v_heads *h, const v_attention_scratch_parts *s, uint32_t head,
                       uint32_t query, uint32_t rows, uint32_t first_key, float *max, float *sum) {
  switch (rows) {
    case 1: block(1, h, s, head, query, first_key, max, sum); break;
    case 2: block(2, h, s, head, query, first_key, max, sum); break;
    case 3: block(3, h, s, head, query, first_key, max, sum); break;
    default: block(4, h, s, head, query, first_key, max, sum); break;
  }
}
