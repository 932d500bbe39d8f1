#include "kernels/linear/signed_dot.h"

#ifdef __wasm_relaxed_simd__
#include <wasm_simd128.h>

/* Four neighbouring codes a times four of b, in every lane. */
static int32_t dot(uint32_t a, uint32_t b) {
  v128_t x = wasm_i32x4_splat((int32_t)a), y = wasm_i32x4_splat((int32_t)b);
  /* Not to be computed by the compiler, which knows nothing of the processor. */
  __asm__("" : "+r"(x), "+r"(y));
  const v128_t zero = wasm_i32x4_const_splat(0);
  return wasm_i32x4_extract_lane(wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, y, zero), 0);
}

/* Pairs of extremes would saturate in 16 bits; the mixed case tells the lanes apart. */
static const struct {
  uint32_t a, b;
  int32_t direct, shifted;
} CASES[] = {
    {0x7f7f7f7f, 0xffffffff, -4 * 127, 4 * 127 * 255},
    {0x81818181, 0xffffffff, 4 * 127, -4 * 127 * 255},
    {0x7f7f7f7f, 0x80808080, -4 * 127 * 128, 4 * 127 * 128},
    {0x04038102, 0x80ff7ffe, -4 * 128 - 3 - 127 * 127 - 2 * 2,
     4 * 128 + 3 * 255 - 127 * 127 + 2 * 254},
};

v_signed_dot v_probe_signed_dot(void) {
  bool direct = true, shifted = true;
  for (uint32_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
    const int32_t result = dot(CASES[i].a, CASES[i].b);
    direct &= result == CASES[i].direct;
    shifted &= result == CASES[i].shifted;
  }
  return direct ? V_SIGNED_DIRECT : shifted ? V_SIGNED_SHIFTED : V_SIGNED_SPLIT;
}
#else
v_signed_dot v_probe_signed_dot(void) { return V_SIGNED_DIRECT; }
#endif
