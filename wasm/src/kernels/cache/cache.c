/* Writes the step's keys and values into the paged cache, and copies blocks. A block's
 * keys are transposed, so that attention multiplies a query's column with 32 keys at once. */
#include "core/half.h"
#include "kernels/kernels.h"

uint32_t v_cache_tiles(const v_task *t) { return v_ceil_div(t->num_tokens, V_ROWS_PER_TILE); }

/* One token of one head: `keys` and `values` point at the token's offset in the block. */
static void write_f32(const float *k, const float *v, uint32_t dim, float *keys, float *values) {
  for (uint32_t d = 0; d < dim; d++) keys[(size_t)d * V_KV_BLOCK] = k[d];
  v_copy_floats(values, v, dim);
}

static void write_f16(const float *k, const float *v, uint32_t dim, uint16_t *keys,
                      uint16_t *values) {
  V_FOR_COLUMNS(d, lanes, dim) {
    uint32_t key[4], value[4];
    v_store(key, v_f32x4_to_f16(v_at(k + d, lanes)));
    v_store(value, v_f32x4_to_f16(v_at(v + d, lanes)));
    for (uint32_t l = 0; l < lanes; l++) {
      keys[(size_t)(d + l) * V_KV_BLOCK] = (uint16_t)key[l];
      values[d + l] = (uint16_t)value[l];
    }
  }
}

void v_cache_run(v_task *t, uint32_t tile) {
  const v_op_record *op = t->op;
  const v_kv_layer *layer = v_layer(t);
  const uint32_t dim = layer->head_dim;
  const uint32_t end = v_min_u32((tile + 1) * V_ROWS_PER_TILE, t->num_tokens);
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < end; r++) {
    const float *k = v_in(t, V_CACHE_K) + (size_t)r * v_width(t, op->ins[V_CACHE_K]) +
                     op->uints[V_CACHE_K_OFFSET];
    const float *v = v_in(t, V_CACHE_V) + (size_t)r * v_width(t, op->ins[V_CACHE_V]) +
                     op->uints[V_CACHE_V_OFFSET];
    const uint32_t place = t->ws->gen.places[r], offset = place % V_KV_BLOCK;
    uint8_t *head = layer->data + (size_t)(place / V_KV_BLOCK) * layer->block_bytes;
    for (uint32_t h = 0; h < layer->kv_heads; h++, k += dim, v += dim) {
      uint8_t *values = head + layer->head_bytes / 2;
      if (t->model->cache_format == V_CACHE_F16) {
        write_f16(k, v, dim, (uint16_t *)(void *)head + offset,
                  (uint16_t *)(void *)values + (size_t)offset * dim);
      } else {
        write_f32(k, v, dim, (float *)(void *)head + offset,
                  (float *)(void *)values + (size_t)offset * dim);
      }
      head += layer->head_bytes;
    }
  }
}

uint32_t v_copy_tiles(const v_task *t) { return t->ws->gen.num_copies * t->model->num_layers; }

void v_copy_run(v_task *t, uint32_t tile) {
  const uint32_t layers = t->model->num_layers;
  const v_block_copy copy = t->ws->gen.copies[tile / layers];
  const v_kv_layer *layer = &t->model->layers[tile % layers];
  v_copy(layer->data + (size_t)copy.to * layer->block_bytes,
         layer->data + (size_t)copy.from * layer->block_bytes, layer->block_bytes);
}
