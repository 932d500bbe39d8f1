#include "kernels/kernels.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "program/validate.h"

static v_kv_layer *find_layer(const v_model *m, uint32_t layer) {
  for (uint32_t i = 0; i < m->num_layers; i++) {
    if (m->layers[i].layer == layer) return &m->layers[i];
  }
  return NULL;
}

int32_t v_plan_layers(v_model *m) {
  const v_program *p = &m->program;
  m->is_decoder = v_is_decoder(p);
  m->num_layers = 0;
  if (!m->is_decoder) return V_OK;
  uint32_t layers = 0;
  for (uint32_t i = 0; i < p->num_ops; i++) layers += p->ops[i].kind == V_OP_CACHE;
  ALLOCATE(m->layers, layers);
  ALLOCATE(m->layer_of, p->num_ops);
  for (uint32_t i = 0; i < p->num_ops; i++) {
    const uint32_t *u = p->ops[i].uints;
    m->layer_of[i] = NULL;
    if (p->ops[i].kind == V_OP_CACHE) {
      m->layer_of[i] = &m->layers[m->num_layers++];
      *m->layer_of[i] = (v_kv_layer){.layer = u[V_CACHE_LAYER],
                                     .kv_heads = u[V_CACHE_KV_HEADS],
                                     .head_dim = u[V_CACHE_HEAD_DIM]};
    } else if (p->ops[i].kind == V_OP_ATTENTION && u[V_ATTENTION_CACHE]) {
      m->layer_of[i] = find_layer(m, u[V_ATTENTION_CACHE] - 1);
    }
  }
  return V_OK;
}

static int32_t allocate_layers(v_model *m) {
  const uint32_t item = m->cache_format == V_CACHE_F16 ? 2 : 4;
  for (uint32_t i = 0; i < m->num_layers; i++) {
    v_kv_layer *layer = &m->layers[i];
    /* At most 4096 heads of 4096 columns: 2 * 4096 * 4096 * 32 * 4 is 2^32. */
    const uint64_t head = (uint64_t)2 * layer->head_dim * V_KV_BLOCK * item;
    const uint64_t block = head * layer->kv_heads;
    if (block > UINT32_MAX) return v_fail(V_NO_MEMORY, (uint32_t)block, (uint32_t)(block >> 32));
    layer->head_bytes = (uint32_t)head;
    layer->block_bytes = (uint32_t)block;
    layer->data = v_plan_alloc(block * m->kv_blocks + V_SLACK);
    if (!layer->data) return V_NO_MEMORY;
  }
  return V_OK;
}

static int32_t allocate_workspace(v_model *m, v_arena *ws) {
  v_generation *g = &ws->gen;
  ALLOCATE(g->tables, m->max_seqs);
  ALLOCATE(g->blocks, (uint64_t)m->max_seqs * m->table_blocks);
  ALLOCATE(g->copies, m->kv_blocks);
  ALLOCATE(g->wanted, m->max_wanted);
  ALLOCATE(g->rows, m->max_wanted);
  ALLOCATE(g->data, m->data_words);
  ALLOCATE(g->sampled, m->max_wanted);
  ALLOCATE(g->places, m->max_tokens);
  ALLOCATE(g->first_wanted, (uint64_t)m->max_seqs + 1);
  ALLOCATE(g->marks, m->kv_blocks);
  for (uint32_t i = 0; i < m->program.num_slots; i++) {
    const v_slot_record *slot = &m->program.slots[i];
    if (slot->rows == V_ROWS_PICKED) {
      ALLOCATE(ws->slots[i], (uint64_t)m->max_wanted * slot->width);
    }
  }
  return V_OK;
}

int32_t v_plan_cache(v_model *m) {
  const uint64_t start = v_heap_mark();
  const uint32_t positions = m->program.header->max_positions;
  m->table_blocks = m->kv_blocks;
  if (positions) m->table_blocks = v_min_u32(m->kv_blocks, v_ceil_div(positions, V_KV_BLOCK));
  int32_t error = allocate_layers(m);
  const uint64_t after = v_heap_mark();
  for (uint32_t i = 0; i < m->num_workspaces && error == V_OK; i++) {
    error = allocate_workspace(m, &m->workspaces[i]);
  }
  if (error != V_OK) {
    v_heap_reset(start);
    return error;
  }
  m->cache_bytes = after - start;
  m->workspace_bytes += v_heap_mark() - after;
  m->has_cache = true;
  return V_OK;
}

uint64_t v_generation_part_bytes(const v_model *m, v_ws_part part) {
  if (!m->has_cache) return 0;
  switch (part) {
    case V_WS_TABLES: return sizeof(uint32_t) * (uint64_t)m->max_seqs;
    case V_WS_BLOCKS: return sizeof(uint32_t) * (uint64_t)m->max_seqs * m->table_blocks;
    case V_WS_COPIES: return sizeof(v_block_copy) * (uint64_t)m->kv_blocks;
    case V_WS_WANTED: return sizeof(uint32_t) * (uint64_t)m->max_wanted;
    case V_WS_SAMPLE: return sizeof(v_sample_row) * (uint64_t)m->max_wanted;
    case V_WS_SAMPLE_DATA: return sizeof(uint32_t) * (uint64_t)m->data_words;
    case V_WS_SAMPLED: return sizeof(v_sampled) * (uint64_t)m->max_wanted;
    default: return 0;
  }
}
