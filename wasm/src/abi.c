/* The exported functions of volery.h, but for those of the threads builds
 * (step/threads.c): they check the order and ranges of calls; the work is elsewhere. */
#include "core/model.h"
#include "load/write_rows.h"
#include "plan/memory.h"
#include "plan/plan.h"
#include "program/validate.h"
#include "step/step.h"

#define MAX_ROWS (1u << 24) /* tokens or sequences of a step */
#define MAX_CONCURRENCY 256 /* workspaces, threads */
#define MAX_DATA_WORDS (1u << 28)

v_model v_the_model;

V_EXPORT(v_abi_version) uint32_t v_abi_version(void) { return V_ABI_VERSION; }

V_EXPORT(v_features) uint32_t v_features(void) {
  uint32_t features = 0;
#ifdef __wasm_relaxed_simd__
  features |= 1;
#endif
#ifdef __wasm_atomics__
  features |= 2;
#endif
  return features;
}

V_EXPORT(v_detail) uint32_t v_detail(uint32_t which) {
  return which < 2 ? v_the_model.detail[which] : 0;
}

V_EXPORT(v_alloc) uint32_t v_alloc(uint32_t bytes) {
  if (v_the_model.state == V_STATE_SEALED) {
    v_fail(V_BAD_CALL, 0, 0);
    return 0;
  }
  return (uint32_t)(uintptr_t)v_plan_alloc(bytes);
}

/* Copies the program, so that the host may reuse its buffer, and checks the copy. */
static int32_t create(v_model *m, const uint8_t *program, uint32_t bytes) {
  uint8_t *copy = v_plan_alloc(bytes);
  if (!copy) return V_NO_MEMORY;
  v_copy(copy, program, bytes);
  int32_t error = v_validate(copy, bytes, &m->program);
  if (error == V_OK) error = v_plan_weights(m);
  if (error == V_OK) error = v_plan_layers(m);
  if (error == V_OK) error = v_plan_workspaces(m);
  return error;
}

V_EXPORT(v_create) int32_t v_create(uint32_t program, uint32_t program_bytes,
                                           uint32_t max_tokens, uint32_t max_seqs,
                                           uint32_t workspaces, uint32_t threads) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_EMPTY) return v_fail(V_BAD_CALL, 0, 0);
  if (!v_in_memory(program, program_bytes)) return v_fail(V_BAD_CALL, 1, program_bytes);
  if (max_tokens == 0 || max_tokens > MAX_ROWS) return v_fail(V_BAD_CALL, 3, max_tokens);
  if (max_seqs == 0 || max_seqs > MAX_ROWS) return v_fail(V_BAD_CALL, 4, max_seqs);
  if (workspaces == 0 || workspaces > MAX_CONCURRENCY) return v_fail(V_BAD_CALL, 5, workspaces);
  if (threads == 0 || threads > MAX_CONCURRENCY) return v_fail(V_BAD_CALL, 6, threads);
  m->max_tokens = max_tokens;
  m->max_seqs = max_seqs;
  m->num_workspaces = workspaces;
  m->num_threads = threads;
  const uint64_t mark = v_heap_mark();
  const int32_t error = create(m, (const uint8_t *)(uintptr_t)program, program_bytes);
  if (error != V_OK) {
    v_heap_reset(mark); /* another program may be tried */
    return error;
  }
  m->state = V_STATE_LOADING;
  return V_OK;
}

V_EXPORT(v_cache) int32_t v_cache(uint32_t kv_blocks, uint32_t format, uint32_t max_wanted,
                                         uint32_t data_words) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_LOADING || !m->is_decoder || m->has_cache) {
    return v_fail(V_BAD_CALL, 0, 0);
  }
  if (kv_blocks == 0 || kv_blocks > MAX_ROWS) return v_fail(V_BAD_CALL, 1, kv_blocks);
  if (format > V_CACHE_F16) return v_fail(V_BAD_CALL, 2, format);
  if (max_wanted == 0) return v_fail(V_BAD_CALL, 3, max_wanted);
  if (data_words > MAX_DATA_WORDS) return v_fail(V_BAD_CALL, 4, data_words);
  m->kv_blocks = kv_blocks;
  m->cache_format = (v_cache_format)format;
  m->max_wanted = v_min_u32(max_wanted, m->max_tokens);
  m->data_words = data_words;
  return v_plan_cache(m);
}

static bool is_written(const v_weight *w, uint32_t group) {
  return w->written[group / 8] >> (group % 8) & 1;
}

V_EXPORT(v_write_rows) int32_t v_write_rows(uint32_t t, uint32_t row0, uint32_t rows,
                                                   uint32_t data, uint32_t scale, uint32_t min) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_LOADING) return v_fail(V_BAD_CALL, 0, 0);
  if (t >= m->program.num_tensors) return v_fail(V_BAD_CALL, 1, t);
  v_weight *w = &m->weights[t];
  if (row0 % 8 != 0 || row0 >= w->rows) return v_fail(V_BAD_CALL, 2, row0);
  if (rows == 0 || rows > w->rows - row0) return v_fail(V_BAD_CALL, 3, rows);
  if (rows % 8 != 0 && row0 + rows != w->rows) return v_fail(V_BAD_CALL, 3, rows);
  const v_row_parts parts = v_row_parts_of(w);
  if (!v_in_memory(data, rows * parts.data)) return v_fail(V_BAD_CALL, 4, data);
  if (parts.scale && !v_in_memory(scale, rows * parts.scale)) return v_fail(V_BAD_CALL, 5, scale);
  if (parts.min && !v_in_memory(min, rows * parts.min)) return v_fail(V_BAD_CALL, 6, min);
  const uint32_t first = row0 / 8, end = v_ceil_div(row0 + rows, 8);
  for (uint32_t g = first; g < end; g++) {
    if (is_written(w, g)) return v_fail(V_BAD_CALL, 2, row0);
  }
  if (!v_store_rows(w, row0, rows, (const uint8_t *)(uintptr_t)data,
                    (const uint8_t *)(uintptr_t)scale, (const uint8_t *)(uintptr_t)min)) {
    return v_fail(V_BAD_CALL, 4, data);
  }
  for (uint32_t g = first; g < end; g++) w->written[g / 8] |= (uint8_t)(1u << (g % 8));
  w->groups_missing -= end - first;
  return V_OK;
}

V_EXPORT(v_seal) int32_t v_seal(void) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_LOADING || m->is_decoder != m->has_cache) {
    return v_fail(V_BAD_CALL, 0, 0);
  }
  for (uint32_t t = 0; t < m->program.num_tensors; t++) {
    if (m->weights[t].groups_missing) return v_fail(V_INCOMPLETE, t, m->weights[t].groups_missing);
  }
  m->state = V_STATE_SEALED;
  return V_OK;
}

V_EXPORT(v_memory_bytes) uint64_t v_memory_bytes(uint32_t which) {
  switch (which) {
    case 0: return v_the_model.weight_bytes;
    case 1: return v_the_model.workspace_bytes;
    case 2: return v_memory_size();
    case 3: return v_the_model.cache_bytes;
    default: return 0;
  }
}

V_EXPORT(v_workspace) uint32_t v_workspace(uint32_t index, uint32_t part) {
  const v_model *m = &v_the_model;
  if (m->state == V_STATE_EMPTY || index >= m->num_workspaces) return 0;
  const v_arena *ws = &m->workspaces[index];
  const v_generation *g = &ws->gen;
  const void *at = NULL;
  switch (part) {
    case V_WS_HEADER: at = ws->header; break;
    case V_WS_TOKENS: at = ws->tokens; break;
    case V_WS_SEQS: at = ws->seqs; break;
    case V_WS_OUTPUT: at = ws->slots[m->program.header->output_slot]; break;
    case V_WS_STATUS: at = ws->status; break;
    case V_WS_TABLES: at = g->tables; break;
    case V_WS_BLOCKS: at = g->blocks; break;
    case V_WS_COPIES: at = g->copies; break;
    case V_WS_WANTED: at = g->wanted; break;
    case V_WS_SAMPLE: at = g->rows; break;
    case V_WS_SAMPLE_DATA: at = g->data; break;
    case V_WS_SAMPLED: at = g->sampled; break;
    default: break;
  }
  return (uint32_t)(uintptr_t)at;
}

static uint64_t output_bytes(const v_model *m) {
  const v_slot_record *output = &m->program.slots[m->program.header->output_slot];
  const uint64_t rows = output->rows == V_ROWS_TOKENS ? m->max_tokens
                        : output->rows == V_ROWS_SEQS ? m->max_seqs
                                                      : m->max_wanted;
  return rows * output->width * sizeof(float);
}

V_EXPORT(v_part_bytes) uint32_t v_part_bytes(uint32_t part) {
  const v_model *m = &v_the_model;
  if (m->state == V_STATE_EMPTY) return 0;
  switch (part) {
    case V_WS_HEADER: return sizeof(v_step_header);
    case V_WS_TOKENS: return m->max_tokens * (uint32_t)sizeof(int32_t);
    case V_WS_SEQS: return m->max_seqs * (uint32_t)sizeof(v_seq);
    case V_WS_OUTPUT: return (uint32_t)output_bytes(m);
    case V_WS_STATUS: return m->max_seqs;
    default: return (uint32_t)v_generation_part_bytes(m, (v_ws_part)part);
  }
}

V_EXPORT(v_run) int32_t v_run(uint32_t ws) {
  v_model *m = &v_the_model;
  if (m->state != V_STATE_SEALED) return v_fail(V_BAD_CALL, 0, 0);
  if (ws >= m->num_workspaces) return v_fail(V_BAD_CALL, 1, ws);
  return v_lead_step(m, ws, 1);
}
