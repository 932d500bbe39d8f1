"""Scalar functions are told apart by their values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_py.program import Activation
from toolchain.lowering.activations import FUNCTIONS, Floats, recognise


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_every_activation_is_told_from_the_others(activation: Activation) -> None:
    found = recognise(FUNCTIONS[activation])
    assert found is not None
    assert (found.activation, found.alpha, found.factor, found.offset) == (activation, 1, 1, 0)


@given(st.floats(0.05, 20), st.floats(-5, 5))
def test_factor_and_offset_are_measured(factor: float, offset: float) -> None:
    def function(x: Floats) -> Floats:
        return factor * FUNCTIONS[Activation.GELU](x) + offset

    found = recognise(function)
    assert found is not None
    assert found.activation is Activation.GELU
    assert found.factor == pytest.approx(factor, rel=1e-5)
    assert found.offset == pytest.approx(offset, abs=1e-5)


def test_f32_constants_of_exporters_are_close_enough() -> None:
    root_two = float(np.float32(np.sqrt(2.0)))

    def function(x: Floats) -> Floats:
        return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / root_two))

    found = recognise(function)
    assert found is not None
    assert found.activation is Activation.GELU


@pytest.mark.parametrize(
    "function",
    [np.sin, lambda x: x**3, lambda x: np.log(x), lambda x: np.where(x > 0, x, 0.02 * x)],
)
def test_other_functions_are_nobody(function: object) -> None:
    assert recognise(function) is None  # type: ignore[arg-type]
