"""Numerics, gates and the cost profile, on numbers made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runtime_py.errors import AccuracyGate
from toolchain.pack.cost_profile import non_negative_least_squares
from toolchain.verify.numerics import compare


def test_compare_finds_the_worst_text() -> None:
    expected = np.eye(3)
    found = np.eye(3, dtype=np.float32)
    found[1] = (0.6, 0.8, 0.0)
    report = compare(found, expected, backend="x", gate=0.9)
    assert report.worst_cosine == pytest.approx(0.8)
    assert report.worst_text == 1
    assert report.mean_cosine == pytest.approx((2 + 0.8) / 3)
    assert report.max_abs_diff == pytest.approx(0.6)
    assert not report.passed
    with pytest.raises(AccuracyGate, match=r"0\.800000 .* at least 0\.9.*--allow-accuracy-loss"):
        report.enforce("i4")
    compare(found, expected, backend="x", gate=0.79).enforce("i4")


@pytest.mark.parametrize("value", [0.0, math.nan, math.inf])
def test_E10_nothing_passes_a_gate_by_being_undefined(value: float) -> None:
    found = np.full((2, 4), value, np.float32)
    report = compare(found, np.ones((2, 4)), backend="x", gate=0.5)
    assert not report.passed


def test_least_squares_recovers_costs_and_never_goes_negative() -> None:
    rng = np.random.default_rng(0)
    a = rng.uniform(1, 10, (12, 4))
    x = np.array([3.0, 0.0, 2.0, 0.5])
    np.testing.assert_allclose(non_negative_least_squares(a, a @ x), x, atol=1e-9)
    falling = a @ np.array([5.0, -1.0, 1.0, 0.0])
    fitted = non_negative_least_squares(a, falling)
    assert (fitted >= 0).all()
    direct = np.square(a @ fitted - falling).sum()
    assert direct <= np.square(a @ np.maximum([5.0, -1.0, 1.0, 0.0], 0) - falling).sum()
