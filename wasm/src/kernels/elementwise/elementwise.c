/* unary: out = activation(alpha * x). binary: out = a OP b, b a slot or a constant row. */
#include "kernels/kernels.h"
#include "math/activation.h"
#include "math/exponential.h"

void v_unary_run(v_task *t, uint32_t tile) {
  const uint32_t width = v_width(t, t->op->out);
  const v128_t alpha = v_splat(t->op->floats[V_UNARY_ALPHA]);
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    const float *x = v_in(t, V_UNARY_X) + (size_t)r * width;
    float *y = v_slot(t, t->op->out) + (size_t)r * width;
    V_FOR_COLUMNS(i, lanes, width) { v_put(y + i, v_mul(v_at(x + i, lanes), alpha), lanes); }
    v_activate((v_activation)t->op->uints[V_UNARY_ACTIVATION], y, y, width);
  }
}

static inline v128_t apply(v_binary_op op, v128_t a, v128_t b) {
  switch (op) {
    case V_BINARY_ADD: return v_add(a, b);
    case V_BINARY_SUB: return v_sub(a, b);
    case V_BINARY_MUL: return v_mul(a, b);
    case V_BINARY_DIV: return v_div(a, b);
  }
  return a;
}

void v_binary_run(v_task *t, uint32_t tile) {
  const v_op_record *op = t->op;
  const uint32_t width = v_width(t, op->out);
  const v_binary_op kind = (v_binary_op)op->uints[V_BINARY_OP];
  const float *constant = v_vector(t, V_BINARY_CONSTANT);
  const bool scalar = constant && v_tensor(t, V_BINARY_CONSTANT)->rows == 1;
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    const float *a = v_in(t, V_BINARY_A) + (size_t)r * width;
    const float *b = constant ? constant : v_in(t, V_BINARY_B) + (size_t)r * width;
    float *y = v_slot(t, op->out) + (size_t)r * width;
    V_FOR_COLUMNS(i, lanes, width) {
      v128_t p = v_at(a + i, lanes), q = scalar ? v_splat(*b) : v_at(b + i, lanes);
      v_put(y + i, op->flags & V_FLAG_SWAP ? apply(kind, q, p) : apply(kind, p, q), lanes);
    }
  }
}
