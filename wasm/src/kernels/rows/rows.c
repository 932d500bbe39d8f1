/* TOKENS -> PICKED: the wanted rows of the step. */
#include "kernels/kernels.h"
#include "core/simd.h"

void v_rows_run(v_task *t, uint32_t tile) {
  const uint32_t width = v_width(t, t->op->out);
  for (uint32_t r = tile * V_ROWS_PER_TILE; r < v_tile_end(t, tile); r++) {
    v_copy_floats(v_slot(t, t->op->out) + (size_t)r * width,
                  v_in(t, V_ROWS_X) + (size_t)t->ws->gen.wanted[r] * width, width);
  }
}
