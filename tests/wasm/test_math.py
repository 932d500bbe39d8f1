"""The math of the activations against float64, over the whole range of f32."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime_py.program import Activation
from tests.wasm import models
from tests.wasm.driver import OK, Host

WIDTH = 512


def inputs() -> np.ndarray:
    """Dense where functions bend, logarithmic elsewhere, and the special values."""
    dense = np.linspace(-20, 20, 24_001)
    decades = 10.0 ** np.linspace(-37, 38, 6_000)
    edges = [0.0, -0.0, 87.3, -87.3, 88.7, 88.8, -103.9, -104.1, 0.625, -0.625, 14.0, -14.0]
    x = np.concatenate([dense, decades, -decades, edges]).astype(np.float32)
    return np.pad(x, (0, -len(x) % WIDTH))


def apply(activation: Activation, x: np.ndarray, variant: str = "simd") -> np.ndarray:
    rows = x.size // WIDTH
    program = models.unary(activation, WIDTH, rows)
    host = Host(variant)
    assert host.create(program.encode(), tokens=rows, seqs=1) == OK
    host.load(program, {"table": x.astype("<f4").tobytes()})
    host.fill([rows], range(rows))
    assert host.call("v_run", 0) == OK
    return host.output(rows, WIDTH).reshape(-1)


def tail(t: float) -> float:
    """Phi(t), accurate in both tails."""
    return 0.5 * math.erfc(-t / math.sqrt(2))


def mish(x: float) -> float:
    return x * math.tanh(math.log1p(math.exp(x)) if x < 700 else x)


REFERENCE = {
    Activation.GELU_TANH: (
        lambda x: x / (1 + math.exp(min(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3), 700))),
        5e-6,  # the error of the argument grows with x^3
    ),
    Activation.QUICK_GELU: (lambda x: x / (1 + math.exp(min(-1.702 * x, 700))), 5e-6),
    Activation.SILU: (lambda x: x / (1 + math.exp(min(-x, 700))), 5e-7),
    Activation.TANH: (math.tanh, 3e-7),
    Activation.SIGMOID: (lambda x: 1 / (1 + math.exp(min(-x, 700))), 5e-7),
    Activation.MISH: (mish, 1e-6),
    Activation.ELU: (lambda x: x if x > 0 else math.expm1(x), 5e-7),
    Activation.SOFTPLUS: (lambda x: max(x, 0) + math.log1p(math.exp(-abs(x))), 5e-7),
    Activation.EXP: (lambda x: math.exp(x) if x < 700 else math.inf, 3e-7),
}


@pytest.mark.parametrize("activation", REFERENCE, ids=lambda a: a.name.lower())
def test_relative_error(activation: Activation) -> None:
    function, limit = REFERENCE[activation]
    x = inputs()
    got = apply(activation, x).astype(np.float64)
    wanted = np.array([function(float(v)) for v in x])
    overflow = np.abs(wanted) > np.finfo(np.float32).max
    np.testing.assert_array_equal(np.isinf(got), overflow)
    got, wanted, x = got[~overflow], wanted[~overflow], x[~overflow].astype(np.float64)
    # Far left the argument's own rounding is magnified by the exponential, as in any f32
    # library; results under 1e-30 only have to be small.
    far = np.maximum(1, x * x / 25) if activation is Activation.GELU_TANH else 1
    error = np.abs(got - wanted) / np.maximum(np.abs(wanted), 1e-30) / far
    worst = int(np.argmax(error))
    assert error[worst] <= limit, (x[worst], got[worst], wanted[worst])


def test_gelu_error_is_a_few_units_in_the_last_place_of_1_or_x() -> None:
    x = inputs()
    got = apply(Activation.GELU, x).astype(np.float64)
    wanted = np.array([float(v) * tail(float(v)) for v in x])
    error = np.abs(got - wanted) / np.maximum(1, np.abs(x.astype(np.float64)))
    worst = int(np.argmax(error))
    assert error[worst] <= 2e-7, (x[worst], got[worst], wanted[worst])
    # Near zero GELU is x / 2, and keeps its digits.
    near = (np.abs(x) < 0.5) & (np.abs(x) > 1e-30)
    assert np.max(np.abs(got[near] / wanted[near] - 1)) <= 2e-6


@pytest.mark.parametrize("activation", [a for a in Activation if a is not Activation.NONE])
def test_not_a_number_passes_through(activation: Activation) -> None:
    x = np.zeros(WIDTH, np.float32)
    x[[1, 6, 511]] = np.nan
    assert np.flatnonzero(np.isnan(apply(activation, x))).tolist() == [1, 6, 511]


@pytest.mark.parametrize("activation", list(Activation))
def test_both_builds_agree_bit_for_bit(activation: Activation) -> None:
    x = np.random.default_rng(3).normal(0, 6, WIDTH * 8).astype(np.float32)
    assert apply(activation, x).tobytes() == apply(activation, x, "relaxed").tobytes()


def test_infinities() -> None:
    x = np.zeros(WIDTH, np.float32)
    x[:2] = np.inf, -np.inf
    for activation, low in ((Activation.GELU, 0), (Activation.TANH, -1), (Activation.EXP, 0)):
        high = 1 if activation is Activation.TANH else np.inf
        assert apply(activation, x)[:2].tolist() == [high, low]
