#include "math/activation.h"

#include "math/exponential.h"

static inline v128_t gelu_tanh(v128_t x) {
  /* 0.5 x (1 + tanh(u)) = x sigmoid(2u), which keeps its digits left of zero. */
  v128_t x2 = v_mul(x, x);
  v128_t u =
      v_mul(x, v_muladd(x2, V_F32(0.044715f * 1.5957691216057308f), V_F32(1.5957691216057308f)));
  return v_mul(x, v_sigmoid(u));
}

static inline v128_t silu(v128_t x) {
  return v_div(x, v_add(V_F32(1.0f), v_exp(wasm_f32x4_neg(x))));
}

/* tanh(log(1 + e)) with e = exp(x) is (e^2 + 2e) / (e^2 + 2e + 2): no logarithm. */
static inline v128_t mish(v128_t x) {
  v128_t e = v_exp(v_at_most(x, V_F32(20.0f)));
  v128_t n = v_mul(e, v_add(e, V_F32(2.0f)));
  return v_mul(x, v_div(n, v_add(n, V_F32(2.0f))));
}

/* exp(x) - 1 = tanh(x / 2) (exp(x) + 1): no cancellation near zero. */
static inline v128_t elu(v128_t x) {
  v128_t negative = v_at_most(x, V_F32(0.0f));
  v128_t e = v_mul(v_tanh(v_mul(negative, V_F32(0.5f))), v_add(v_exp(negative), V_F32(1.0f)));
  return v_select(x, e, wasm_f32x4_gt(x, V_F32(0.0f)));
}

static inline v128_t softplus(v128_t x) {
  return v_add(v_at_least(x, V_F32(0.0f)),
               v_log1p_unit(v_exp_negative(wasm_f32x4_neg(wasm_f32x4_abs(x)))));
}

static inline v128_t hard_swish(v128_t x) {
  v128_t gate = v_muladd(x, V_F32(1.0f / 6), V_F32(0.5f));
  return v_mul(x, v_at_most(v_at_least(gate, V_F32(0.0f)), V_F32(1.0f)));
}

static inline v128_t relu_squared(v128_t x) {
  v128_t r = v_at_least(x, V_F32(0.0f));
  return v_mul(r, r);
}

#define APPLY(expression)                  \
  V_FOR_COLUMNS(i, lanes, n) {             \
    v128_t v = v_at(x + i, lanes);         \
    v_put(to + i, expression, lanes);      \
  }                                        \
  return

void v_activate(v_activation kind, const float *x, float *to, uint32_t n) {
  switch (kind) {
    case V_ACTIVATION_NONE: APPLY(v);
    case V_ACTIVATION_GELU: APPLY(v_gelu(v));
    case V_ACTIVATION_GELU_TANH: APPLY(gelu_tanh(v));
    case V_ACTIVATION_QUICK_GELU: APPLY(v_mul(v, v_sigmoid(v_mul(v, V_F32(1.702f)))));
    case V_ACTIVATION_RELU: APPLY(v_at_least(v, V_F32(0.0f)));
    case V_ACTIVATION_RELU_SQUARED: APPLY(relu_squared(v));
    case V_ACTIVATION_SILU: APPLY(silu(v));
    case V_ACTIVATION_TANH: APPLY(v_tanh(v));
    case V_ACTIVATION_SIGMOID: APPLY(v_sigmoid(v));
    case V_ACTIVATION_MISH: APPLY(mish(v));
    case V_ACTIVATION_ELU: APPLY(elu(v));
    case V_ACTIVATION_LEAKY_RELU:
      APPLY(v_select(v, v_mul(v, V_F32(0.01f)), wasm_f32x4_gt(v, V_F32(0.0f))));
    case V_ACTIVATION_SOFTPLUS: APPLY(softplus(v));
    case V_ACTIVATION_ABS: APPLY(wasm_f32x4_abs(v));
    case V_ACTIVATION_SQRT: APPLY(wasm_f32x4_sqrt(v));
    case V_ACTIVATION_EXP: APPLY(v_exp(v));
    case V_ACTIVATION_NEG: APPLY(wasm_f32x4_neg(v));
    case V_ACTIVATION_HARD_SWISH: APPLY(hard_swish(v));
  }
}
