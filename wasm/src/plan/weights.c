#include "kernels/linear/layout.h"
#include "kernels/linear/signed_dot.h"
#include "plan/memory.h"
#include "plan/plan.h"

void *v_plan_alloc(uint64_t bytes) {
  void *p = v_heap_alloc(bytes);
  if (!p) v_fail(V_NO_MEMORY, (uint32_t)bytes, (uint32_t)(bytes >> 32));
  return p;
}

static void describe(v_weight *w, const v_tensor_record *t) {
  uint64_t cols = 1;
  for (uint32_t d = 1; d < 4; d++) {
    cols *= t->shape[d];
    if (cols > UINT32_MAX) cols = UINT32_MAX; /* only a tensor no op uses can be so wide */
  }
  *w = (v_weight){.format = (v_format)t->format, .rows = t->shape[0], .cols = (uint32_t)cols};
  w->groups_missing = v_ceil_div(w->rows, 8);
}

static void find_uses(v_model *m) {
  for (uint32_t i = 0; i < m->program.num_ops; i++) {
    const v_op_record *op = &m->program.ops[i];
    for (uint32_t n = 0; n < V_MAX_TENSORS; n++) {
      if (op->tensors[n] < 0) continue;
      v_weight *w = &m->weights[op->tensors[n]];
      if (v_is_block_format(w->format) || (op->kind == V_OP_LINEAR && n == V_LINEAR_WEIGHT)) {
        w->layout = V_LAYOUT_PANELS;
      } else if (w->layout == V_LAYOUT_UNUSED) {
        w->layout = V_LAYOUT_ROWS;
      }
    }
  }
}

static int32_t allocate(v_weight *w) {
  w->written = v_plan_alloc(v_ceil_div(w->groups_missing, 8));
  if (!w->written) return V_NO_MEMORY;
  v_zero(w->written, v_ceil_div(w->groups_missing, 8));
  if (w->layout == V_LAYOUT_UNUSED) return V_OK;
  uint64_t bytes;
  if (w->layout == V_LAYOUT_PANELS) {
    w->panel_bytes = v_panel_bytes(w->format, w->cols);
    bytes = w->groups_missing * w->panel_bytes;
  } else {
    w->row_bytes = (uint64_t)w->cols * (w->format == V_FORMAT_F32   ? 4
                                        : w->format == V_FORMAT_F16 ? 2
                                                                    : 1);
    bytes = w->rows * w->row_bytes;
  }
  w->data = v_plan_alloc(bytes + V_SLACK);
  if (!w->data) return V_NO_MEMORY;
  if (w->format == V_FORMAT_I8R) {
    w->row_scale = v_plan_alloc((uint64_t)w->rows * sizeof(float));
    if (!w->row_scale) return V_NO_MEMORY;
  }
  return V_OK;
}

int32_t v_plan_weights(v_model *m) {
  const uint64_t start = v_heap_mark();
  const uint64_t bytes = (uint64_t)m->program.num_tensors * sizeof(v_weight);
  m->signed_dot = v_probe_signed_dot();
  m->weights = v_plan_alloc(bytes);
  if (!m->weights) return V_NO_MEMORY;
  for (uint32_t i = 0; i < m->program.num_tensors; i++) {
    describe(&m->weights[i], &m->program.tensors[i]);
  }
  find_uses(m);
  for (uint32_t i = 0; i < m->program.num_tensors; i++) {
    if (allocate(&m->weights[i]) != V_OK) return V_NO_MEMORY;
  }
  m->weight_bytes = v_heap_mark() - start;
  return V_OK;
}
