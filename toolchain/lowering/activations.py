"""Names a scalar function by its values.

Exporters spell GELU and its relatives in many ways; the function they compute is the
same. A composed function is compared with ``d + c * act(x)`` for every activation of
the runtime on a grid of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runtime_py.program import Activation

Floats = NDArray[np.float64]

_GRID = np.concatenate([np.linspace(-9.0, 9.0, 361), np.linspace(-1.0, 1.0, 41)])
_TOLERANCE = 2e-6


class Recognised(NamedTuple):
    """``offset + factor * activation(alpha * x)``."""

    activation: Activation
    alpha: float
    factor: float
    offset: float


def erf(x: Floats) -> Floats:
    """The error function, element by element."""
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def sigmoid(x: Floats) -> Floats:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def softplus(x: Floats) -> Floats:
    return np.logaddexp(0.0, x)


FUNCTIONS: dict[Activation, Callable[[Floats], Floats]] = {
    Activation.NONE: lambda x: x,
    Activation.GELU: lambda x: 0.5 * x * (1.0 + erf(x / math.sqrt(2.0))),
    Activation.GELU_TANH: lambda x: (
        0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    ),
    Activation.QUICK_GELU: lambda x: x * sigmoid(1.702 * x),
    Activation.RELU: lambda x: np.maximum(x, 0.0),
    Activation.RELU_SQUARED: lambda x: np.maximum(x, 0.0) ** 2,
    Activation.SILU: lambda x: x * sigmoid(x),
    Activation.TANH: np.tanh,
    Activation.SIGMOID: sigmoid,
    Activation.MISH: lambda x: x * np.tanh(softplus(x)),
    Activation.ELU: lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0.0))),
    Activation.LEAKY_RELU: lambda x: np.where(x > 0, x, 0.01 * x),
    Activation.SOFTPLUS: softplus,
    Activation.ABS: np.abs,
    Activation.EXP: np.exp,
    Activation.HARD_SWISH: lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
}
"""The activations as float64 functions (SQRT and NEG are never needed here)."""


def recognise(function: Callable[[Floats], Floats], scale: float = 1.0) -> Recognised | None:
    """The activation that ``function`` is, up to factors and an offset, or None.

    Args:
        scale: a factor of the argument to try besides 1 and -1, and before them.
    """
    with np.errstate(all="ignore"):
        want = function(_GRID)
        if want.shape != _GRID.shape or not np.all(np.isfinite(want)):
            return None
        size = max(1.0, float(np.abs(want).max()))
        for alpha in dict.fromkeys((scale, 1.0, -1.0)):
            for activation, candidate in FUNCTIONS.items():
                got = candidate(alpha * _GRID)
                basis = np.stack([got, np.ones_like(got)], axis=1)
                (factor, offset), *_ = np.linalg.lstsq(basis, want, rcond=None)
                if factor == 0.0:
                    continue
                if np.abs(factor * got + offset - want).max() <= _TOLERANCE * size:
                    return Recognised(
                        activation, alpha, _snap(float(factor), 1.0), _snap(float(offset), 0.0)
                    )
    return None


def _snap(value: float, to: float) -> float:
    """``to`` when ``value`` differs from it by rounding only."""
    return to if abs(value - to) < 1e-6 else value
