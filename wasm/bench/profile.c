/* Time per op of the program, for bench builds. */
#include "step/bench.h"

#define MAX_OPS 4096

__attribute__((import_module("env"), import_name("now"))) double host_now(void);

static double spent[MAX_OPS];

double v_bench_now(void) { return host_now(); }

void v_bench_add(uint32_t op, double start) {
  if (op < MAX_OPS) spent[op] += host_now() - start;
}

/* Milliseconds that op number `op` took since the last call for it. */
V_EXPORT(v_bench_op) double v_bench_op(uint32_t op) {
  if (op >= MAX_OPS) return 0;
  const double time = spent[op];
  spent[op] = 0;
  return time;
}
