/* From scores to weights: soft cap, bias, mask and the online softmax, for keys packed by the
 * step or paged in the cache. */
#include "kernels/attention/attention.h"

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

void v_attention_adjust(const v_heads *h, float *scores, uint32_t columns, uint32_t head,
                        uint32_t query, uint32_t first_key) {
  uint32_t low, high;
  visible_keys(h, query, &low, &high);
  const bool sees_all = low <= first_key && first_key + columns <= high;
  if (sees_all && !h->bias && h->softcap == 0) return;
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

/* The rows stand side by side in the vectors of what is computed once per row, so that they
 * share its latency. */
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

void v_attention_softmax(uint32_t rows, float *scores, uint32_t columns, float *max, float *sum,
                         float *shrink) {
  switch (rows) {
    case 1: softmax_rows(1, scores, columns, max, sum, shrink); break;
    case 2: softmax_rows(2, scores, columns, max, sum, shrink); break;
    case 3: softmax_rows(3, scores, columns, max, sum, shrink); break;
    default: softmax_rows(4, scores, columns, max, sum, shrink); break;
  }
}
