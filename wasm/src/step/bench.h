/* Time per op, only in bench builds (-DVOLERY_BENCH): they import env.now, a clock in
 * milliseconds, and export v_bench_op. Everywhere else this costs nothing. */
#ifndef VOLERY_BENCH_H
#define VOLERY_BENCH_H
#include "core/base.h"

#ifdef VOLERY_BENCH
double v_bench_now(void);
void v_bench_add(uint32_t op, double start);
#else
V_INLINE double v_bench_now(void) { return 0; }
V_INLINE void v_bench_add(uint32_t op, double start) {
  (void)op;
  (void)start;
}
#endif

#endif
