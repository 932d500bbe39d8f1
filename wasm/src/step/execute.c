#include "step/step.h"

#include "kernels/kernels.h"
#include "step/bench.h"
#include "step/threads.h"

static uint32_t tiles_of(const v_task *t) {
  switch ((v_op_kind)t->op->kind) {
    case V_OP_LINEAR: return v_linear_tiles(t);
    case V_OP_ATTENTION: return v_attention_tiles(t);
    case V_OP_POOL: return v_pool_tiles(t);
    case V_OP_CACHE: return v_cache_tiles(t);
    default: return v_row_tiles(t);
  }
}

static void run_tile(v_task *t, uint32_t tile) {
  switch ((v_op_kind)t->op->kind) {
    case V_OP_EMBED: v_embed_run(t, tile); break;
    case V_OP_NORM: v_norm_run(t, tile); break;
    case V_OP_LINEAR: v_linear_run(t, tile); break;
    case V_OP_GLU: v_glu_run(t, tile); break;
    case V_OP_ROPE: v_rope_run(t, tile); break;
    case V_OP_ATTENTION: v_attention_run(t, tile); break;
    case V_OP_POOL: v_pool_run(t, tile); break;
    case V_OP_NORMALIZE: v_normalize_run(t, tile); break;
    case V_OP_UNARY: v_unary_run(t, tile); break;
    case V_OP_BINARY: v_binary_run(t, tile); break;
    case V_OP_CACHE: v_cache_run(t, tile); break;
    case V_OP_ROWS: v_rows_run(t, tile); break;
  }
}

static bool copy_blocks(v_task *t, v_arena *ws) {
  if (ws->gen.num_copies == 0) return true;
  const uint32_t tiles = v_copy_tiles(t);
  uint32_t *next = &ws->next_tile[t->model->program.num_ops + 1];
  for (uint32_t tile; (tile = v_take_tile(next)) < tiles;) v_copy_run(t, tile);
  return v_barrier(ws, t->ranks);
}

/* Decoders: the status of the sequences, and the tokens when the step samples. Others:
 * the status alone. */
static void close_step(v_task *t, v_arena *ws) {
  const bool decoder = t->model->is_decoder;
  const uint32_t tiles = decoder ? v_sample_tiles(t) : v_finite_tiles(t);
  uint32_t *next = &ws->next_tile[t->model->program.num_ops];
  for (uint32_t tile; (tile = v_take_tile(next)) < tiles;) {
    if (decoder) {
      v_sample_run(t, tile);
    } else {
      v_finite_run(t, tile);
    }
  }
}

/* False when the step was abandoned. */
static bool run_ops(v_task *t, v_arena *ws) {
  const v_program *p = &t->model->program;
  if (!copy_blocks(t, ws)) return false;
  for (uint32_t i = 0; i < p->num_ops; i++) {
    const double start = v_bench_now();
    t->op = &p->ops[i];
    t->prepared = 0;
    const uint32_t tiles = tiles_of(t);
    for (uint32_t tile; (tile = v_take_tile(&ws->next_tile[i])) < tiles;) run_tile(t, tile);
    if (!v_barrier(ws, t->ranks)) return false;
    v_bench_add(i, start);
  }
  close_step(t, ws);
  /* The leader returns to its host only when nobody writes any more. */
  return v_barrier(ws, t->ranks);
}

static int32_t abandoned(v_arena *ws) {
  /* The leader may have written another status since v_abandon did. */
  return ws->header->status = V_ABANDONED;
}

int32_t v_run_rank(v_model *m, uint32_t index, uint32_t rank, uint32_t ranks) {
  v_arena *ws = &m->workspaces[index];
  if (v_is_abandoned(ws)) return abandoned(ws);
  if (rank == 0) v_prepare_step(m, ws);
  if (!v_barrier(ws, ranks)) return abandoned(ws);
  if (ws->fault != V_OK) {
    const int32_t fault = ws->fault;
    /* The next step may begin once the leader is back. */
    return v_barrier(ws, ranks) ? fault : abandoned(ws);
  }
  v_task task = {
      .model = m,
      .ws = ws,
      .scratch = ws->scratch + (size_t)rank * m->scratch_bytes,
      .ranks = ranks,
      .num_tokens = ws->num_tokens,
      .num_seqs = ws->num_seqs,
      .num_wanted = ws->gen.num_wanted,
  };
  return run_ops(&task, ws) ? V_OK : abandoned(ws);
}

int32_t v_lead_step(v_model *m, uint32_t ws, uint32_t ranks) {
  const int32_t error = v_run_rank(m, ws, 0, ranks);
  const v_step_header *h = m->workspaces[ws].header;
  return error == V_OK ? V_OK : v_fail((v_error)error, h->detail[0], h->detail[1]);
}
