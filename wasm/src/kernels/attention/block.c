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
  for (uint32_t j = 0; j < v_round_up(count, V_KEY_GROUP); j += 4) {
    const uint32_t present = j < count ? v_min_u32(4, count - j) : 0;
    transpose_rows(h->k + (first + j) * h->k_stride, h->k_stride, present, h->head_dim,
                   packed + (size_t)(j & ~7u) * h->head_dim + j % V_KEY_GROUP, V_KEY_GROUP);
  }
}

/* q.k of `rows` queries and the 8 keys of a group, to rows of scores. */
V_INLINE void score_group(const uint32_t rows, const float *q, const float *keys, uint32_t dim,
                          float *scores) {
  v_eight dot[V_QUERY_TILE];
  V_UNROLL for (uint32_t r = 0; r < rows; r++) dot[r] = (v_eight){V_F32(0), V_F32(0)};
  V_KEEP_LOOP for (; dim > 0; dim--, q += V_QUERY_TILE, keys += V_KEY_GROUP) {
    V_BASE(q);
    V_BASE(keys);
    const v128_t k0 = v_load(keys), k1 = v_load(keys + 4);
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      const v128_t x = wasm_v128_load32_splat(q + r);
      dot[r].lo = v_muladd(x, k0, dot[r].lo);
      dot[r].hi = v_muladd(x, k1, dot[r].hi);
    }
  }
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    v_store(scores + r * V_KEYS, dot[r].lo);
    v_store(scores + r * V_KEYS + 4, dot[r].hi);
  }
}

/* The keys that query `query` sees: from *low up to and excluding *high. */
V_INLINE void visible_keys(const v_heads *h, uint32_t query, uint32_t *low, uint32_t *high) {
  *low = h->window && query >= h->window ? query - h->window + 1 : 0;
  *high = h->causal ? query + 1 : h->num_keys;
  if (h->window && h->window < h->num_keys) *high = v_min_u32(*high, query + h->window);
}

/* Four scores: bias of keys key .. key + 3 for the query, from the head's distance 0. */
static v128_t add_bias(const v_heads *h, v128_t s, uint32_t head, uint32_t query, uint32_t key) {
  const ptrdiff_t at = (ptrdiff_t)key - (ptrdiff_t)query + (ptrdiff_t)(h->bias->cols / 2);
  const float *data = (const float *)(const void *)h->bias->data;
  if (h->bias->layout == V_LAYOUT_ROWS) return v_add(s, v_load(data + head * h->bias->cols + at));
  /* The tensor is also a linear layer's weight: 8 heads lie side by side. */
  const float *p = data + (head / 8 * h->bias->cols + at) * 8 + head % 8;
  return v_add(s, wasm_f32x4_make(p[0], p[8], p[16], p[24]));
}

/* Turns a row of q.k into the scores that softmax sees and returns their maximum, the
 * running one included. */
static v128_t finish_scores(const v_heads *h, float *scores, uint32_t columns, uint32_t head,
                            uint32_t query, uint32_t first_key, v128_t most) {
  const v128_t scale = v_splat(h->scale);
  const bool masked = h->causal || h->window || first_key + columns > h->num_keys;
  uint32_t low, high;
  visible_keys(h, query, &low, &high);
  const v128_t from = wasm_i32x4_splat((int32_t)low), to = wasm_i32x4_splat((int32_t)high);
  v128_t index = wasm_i32x4_add(wasm_i32x4_splat((int32_t)first_key), wasm_i32x4_const(0, 1, 2, 3));
  for (uint32_t i = 0; i < columns; i += 4) {
    v128_t s = v_mul(v_load(scores + i), scale);
    if (h->softcap != 0) {
      s = v_mul(v_tanh(v_div(s, v_splat(h->softcap))), v_splat(h->softcap));
    }
    if (h->bias) s = add_bias(h, s, head, query, first_key + i);
    if (masked) {
      const v128_t seen = wasm_v128_and(wasm_i32x4_ge(index, from), wasm_i32x4_lt(index, to));
      s = v_select(s, V_F32(-__builtin_inff()), seen);
      index = wasm_i32x4_add(index, wasm_i32x4_const_splat(4));
    }
    v_store(scores + i, s);
    most = wasm_f32x4_pmax(most, s); /* a NaN is not kept here; it shows in the weights */
  }
  return most;
}

V_NOINLINE float v_attention_softmax(const v_heads *h, float *scores, uint32_t columns,
                                     uint32_t head, uint32_t query, uint32_t first_key, float *max,
                                     float *sum) {
  v128_t most = finish_scores(h, scores, columns, head, query, first_key, v_splat(*max));
  most = wasm_f32x4_pmax(most, wasm_i32x4_shuffle(most, most, 2, 3, 0, 1));
  most = wasm_f32x4_pmax(most, wasm_i32x4_shuffle(most, most, 1, 0, 3, 2));
  const float m = wasm_f32x4_extract_lane(most, 0);
  /* While no key was visible m is -infinity; any finite stand-in makes all weights 0. */
  const float reference = m == -__builtin_inff() ? 0.0f : m;
  const float shrink = wasm_f32x4_extract_lane(v_exp_negative(v_splat(*max - reference)), 0);
  v128_t total = V_F32(0);
  for (uint32_t i = 0; i < columns; i += 4) {
    v128_t w = v_exp_negative(v_sub(v_load(scores + i), v_splat(reference)));
    v_store(scores + i, w);
    total = v_add(total, w);
  }
  *sum = *sum * shrink + v_sum_lanes(total);
  *max = m;
  return shrink;
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
  const uint32_t columns = (uint32_t)v_round_up(keys, V_KEY_GROUP);
  const float *q = h->q + query * h->q_stride + (size_t)head * h->head_dim;
  float *out = h->out + query * h->out_stride + (size_t)head * h->head_dim;
  transpose_rows(q, h->q_stride, rows, h->head_dim, s->queries, V_QUERY_TILE);
  for (uint32_t c = 0; c < columns; c += V_KEY_GROUP) {
    score_group(rows, s->queries, s->keys + (size_t)c * h->head_dim, h->head_dim, s->scores + c);
  }
  float shrink[V_QUERY_TILE];
  for (uint32_t r = 0; r < rows; r++) {
    shrink[r] = v_attention_softmax(h, s->scores + r * V_KEYS, columns, h->first_head + head,
                                    query + r, first_key, max + r, sum + r);
  }
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
