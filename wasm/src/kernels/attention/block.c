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

/* What the scores of a row need beyond the scale: soft cap, bias and mask. */
static V_NOINLINE void adjust_row(const v_heads *h, float *scores, uint32_t columns, uint32_t head,
                                  uint32_t query, uint32_t first_key) {
  uint32_t low, high;
  visible_keys(h, query, &low, &high);
  const v128_t from = wasm_i32x4_splat((int32_t)low), to = wasm_i32x4_splat((int32_t)high);
  v128_t index = wasm_i32x4_add(wasm_i32x4_splat((int32_t)first_key), wasm_i32x4_const(0, 1, 2, 3));
  for (uint32_t i = 0; i < columns; i += 4) {
    v128_t s = v_load(scores + i);
    if (h->softcap != 0) {
      s = v_mul(v_tanh(v_div(s, v_splat(h->softcap))), v_splat(h->softcap));
    }
    if (h->bias) s = add_bias(h, s, head, query, first_key + i);
    const v128_t seen = wasm_v128_and(wasm_i32x4_ge(index, from), wasm_i32x4_lt(index, to));
    v_store(scores + i, v_select(s, V_F32(-__builtin_inff()), seen));
    index = wasm_i32x4_add(index, wasm_i32x4_const_splat(4));
  }
}

/* The columns of four vectors, of which the last 4 - rows may be anything. */
typedef struct {
  v128_t c[4];
} v_four;
V_INLINE v_four transpose_vectors(const v128_t *v, const uint32_t rows) {
  const v128_t b = v[rows > 1 ? 1 : 0], c = v[rows > 2 ? 2 : 0], d = v[rows > 3 ? 3 : 0];
  const v128_t ab0 = wasm_i32x4_shuffle(v[0], b, 0, 4, 1, 5);
  const v128_t ab1 = wasm_i32x4_shuffle(v[0], b, 2, 6, 3, 7);
  const v128_t cd0 = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5);
  const v128_t cd1 = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
  return (v_four){{wasm_i64x2_shuffle(ab0, cd0, 0, 2), wasm_i64x2_shuffle(ab0, cd0, 1, 3),
                   wasm_i64x2_shuffle(ab1, cd1, 0, 2), wasm_i64x2_shuffle(ab1, cd1, 1, 3)}};
}

/* Turns rows of scores into weights and updates m and l; *shrink gets the factors by which
 * the earlier outputs shrink. The rows stand side by side in the vectors of what is
 * computed once per row, so that they share its latency. */
V_INLINE void softmax_rows(const uint32_t rows, float *scores, uint32_t columns, float *max,
                           float *sum, float *shrink) {
  v128_t most[V_QUERY_TILE], total[V_QUERY_TILE];
  V_UNROLL for (uint32_t r = 0; r < rows; r++) most[r] = v_load(scores + r * V_KEYS);
  for (uint32_t i = 4; i < columns; i += 4) {
    V_UNROLL for (uint32_t r = 0; r < rows; r++) {
      /* A NaN need not be kept here; it shows in the weights. */
      most[r] = wasm_f32x4_pmax(most[r], v_load(scores + r * V_KEYS + i));
    }
  }
  const v_four m4 = transpose_vectors(most, rows);
  const v128_t before = v_at(max, rows);
  const v128_t m01 = wasm_f32x4_pmax(m4.c[0], m4.c[1]), m23 = wasm_f32x4_pmax(m4.c[2], m4.c[3]);
  const v128_t m = wasm_f32x4_pmax(before, wasm_f32x4_pmax(m01, m23));
  /* While no key was visible m is -infinity; any finite stand-in makes all weights 0. */
  const v128_t none = wasm_f32x4_eq(m, V_F32(-__builtin_inff()));
  const v128_t reference = wasm_v128_andnot(m, none);
  const v128_t factor = v_exp_negative(v_sub(before, reference));
  float references[V_QUERY_TILE];
  v_store(references, reference);
  V_UNROLL for (uint32_t r = 0; r < rows; r++) {
    const v128_t from = v_splat(references[r]);
    float *row = scores + r * V_KEYS;
    total[r] = V_F32(0);
    for (uint32_t i = 0; i < columns; i += 4) {
      const v128_t w = v_exp_negative(v_sub(v_load(row + i), from));
      v_store(row + i, w);
      total[r] = v_add(total[r], w);
    }
  }
  const v_four t4 = transpose_vectors(total, rows);
  const v128_t l = v_add(v_add(t4.c[0], t4.c[2]), v_add(t4.c[1], t4.c[3]));
  v_put(sum, v_muladd(v_at(sum, rows), factor, l), rows);
  v_put(max, m, rows);
  v_store(shrink, factor);
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
  if (h->causal || h->window || h->bias || h->softcap != 0 || columns > keys) {
    for (uint32_t r = 0; r < rows; r++) {
      adjust_row(h, s->scores + r * V_KEYS, columns, h->first_head + head, query + r, first_key);
    }
  }
  float shrink[V_QUERY_TILE];
  softmax_rows(rows, s->scores, columns, max, sum, shrink);
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
