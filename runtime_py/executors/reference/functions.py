"""The activation functions, over any array namespace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from runtime_py.program import Activation

Array = Any

_CHUNK = 1 << 14  # elements

# erf near 0: the coefficients of its Taylor series in x^2, highest power first.
_SERIES = tuple(
    (-1) ** n * 2 / (math.sqrt(math.pi) * math.factorial(n) * (2 * n + 1))
    for n in range(12, -1, -1)
)
# erfc(x) exp(x^2) from 0.46875 on, numerator and denominator, highest power first: W. J. Cody,
# "Rational Chebyshev Approximation for the Error Function", Math. Comp. 23 (1969).
_NUMERATOR = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_DENOMINATOR = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    result = x * coefficients[0]
    for c in coefficients[1:-1]:
        result += c
        result *= x
    result += coefficients[-1]
    return result


def erf(xp: Any, x: Array) -> Array:
    """The error function, to 3e-16 in f64."""
    a = xp.abs(x)
    near = xp.clip(a, 0, 0.5)
    far = xp.clip(a, 0.46875, 6.0)  # erf(6) rounds to 1
    tail = 1 - xp.exp(-far * far) * (_polynomial(_NUMERATOR, far) / _polynomial(_DENOMINATOR, far))
    return xp.where(a < 0.46875, near * _polynomial(_SERIES, near * near), tail) * xp.sign(x)


def _softplus(xp: Any, x: Array) -> Array:
    return xp.clip(x, 0, None) + xp.log1p(xp.exp(-xp.abs(x)))


def _sigmoid(xp: Any, x: Array) -> Array:
    # exp of a negative number only, so that nothing overflows
    e = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, xp.ones_like(x), e) / (1 + e)


def _gelu_tanh(xp: Any, x: Array) -> Array:
    return 0.5 * x * (1 + xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


_FUNCTIONS: dict[Activation, Callable[[Any, Array], Array]] = {
    Activation.NONE: lambda xp, x: x,
    Activation.GELU: lambda xp, x: 0.5 * x * (1 + erf(xp, x * math.sqrt(0.5))),
    Activation.GELU_TANH: _gelu_tanh,
    Activation.QUICK_GELU: lambda xp, x: x * _sigmoid(xp, 1.702 * x),
    Activation.RELU: lambda xp, x: xp.where(x < 0, xp.zeros_like(x), x),
    Activation.RELU_SQUARED: lambda xp, x: xp.where(x < 0, xp.zeros_like(x), x * x),
    Activation.SILU: lambda xp, x: x * _sigmoid(xp, x),
    Activation.TANH: lambda xp, x: xp.tanh(x),
    Activation.SIGMOID: _sigmoid,
    Activation.MISH: lambda xp, x: x * xp.tanh(_softplus(xp, x)),
    Activation.ELU: lambda xp, x: xp.where(x > 0, x, xp.expm1(xp.clip(x, None, 0))),
    Activation.LEAKY_RELU: lambda xp, x: xp.where(x < 0, 0.01 * x, x),
    Activation.SOFTPLUS: _softplus,
    Activation.ABS: lambda xp, x: xp.abs(x),
    Activation.SQRT: lambda xp, x: xp.sqrt(x),
    Activation.EXP: lambda xp, x: xp.exp(x),
    Activation.NEG: lambda xp, x: -x,
    Activation.HARD_SWISH: lambda xp, x: x * xp.clip(x / 6 + 0.5, 0, 1),
}


def activate(xp: Any, kind: int, x: Array) -> Array:
    """``Activation(kind)`` of every element of ``x`` [rows, columns], in its dtype."""
    function = _FUNCTIONS[Activation(kind)]
    # A few rows at a time, so that the passes over them stay in the cache: 4 x faster.
    step = max(1, _CHUNK // x.shape[1])
    if kind == Activation.NONE or x.shape[0] <= step:
        return function(xp, x)
    return xp.concat([function(xp, x[i : i + step]) for i in range(0, x.shape[0], step)], axis=0)
