/* out = activation(gate) * up. */
#include "kernels/kernels.h"
#include "math/activation.h"
#include "math/exponential.h"

#define COLUMNS 256 /* activated at once, in a buffer that stays in the first cache */

void v_glu_run(v_task *t, uint32_t tile) {
  const v_op_record *op = t->op;
  const uint32_t width = v_width(t, op->out);
  const bool split = op->ins[V_GLU_UP] < 0;
  const size_t stride = split ? 2 * (size_t)width : width;
  const bool up_first = op->flags & V_FLAG_UP_FIRST;
  float activated[COLUMNS];
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    const float *gate = v_in(t, V_GLU_GATE) + r * stride;
    const float *up = split ? gate + width : v_in(t, V_GLU_UP) + r * stride;
    if (up_first) {
      const float *swap = gate;
      gate = up;
      up = swap;
    }
    float *out = v_slot(t, op->out) + (size_t)r * width;
    for (uint32_t from = 0; from < width; from += COLUMNS) {
      const uint32_t n = v_min_u32(COLUMNS, width - from);
      v_activate((v_activation)op->uints[V_GLU_ACTIVATION], gate + from, activated, n);
      V_FOR_COLUMNS(i, lanes, n) {
        v_put(out + from + i, v_mul(v_load(activated + i), v_at(up + from + i, lanes)), lanes);
      }
    }
  }
}
