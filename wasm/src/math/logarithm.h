/* The natural logarithm of one f64. */
#ifndef VOLERY_LOGARITHM_H
#define VOLERY_LOGARITHM_H
#include "core/base.h"

/* log(x) of a positive normal x: x = m 2^e with m in [sqrt(1/2), sqrt 2), and log m is
 * 2 atanh(s) with s = (m - 1) / (m + 1), |s| < 0.172, whose series is used: the first
 * term left out is below 1e-17. Infinity and NaN give NaN or a large number. */
V_INLINE double v_log(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  int32_t e = (int32_t)(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
  double m;
  __builtin_memcpy(&m, &bits, sizeof m);
  if (m > 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    e++;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double p = 0;
  for (int32_t k = 19; k >= 3; k -= 2) p = (p + 1.0 / k) * s2;
  return e * 0x1.62e42fefa39efp-1 + 2 * (s + s * p);
}

#endif
