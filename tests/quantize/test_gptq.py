"""Error compensation against plain rounding, judged by float64 outputs on new inputs."""

from __future__ import annotations

import numpy as np
import pytest

from toolchain.quantize.gptq import compensated_codes, corrected, nearest_codes


def correlated(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Inputs that share a few directions, as activations do."""
    basis = np.random.default_rng(99).standard_normal((columns // 4, columns))
    noise = 0.3 * rng.standard_normal((rows, columns))
    return (rng.standard_normal((rows, columns // 4)) @ basis + noise).astype(np.float32)


@pytest.mark.parametrize("levels", [127, 15])
@pytest.mark.parametrize("shape", [(24, 64), (17, 100), (40, 256)])
def test_compensation_beats_plain_rounding_on_unseen_inputs(
    levels: int, shape: tuple[int, int]
) -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_normal(shape).astype(np.float32)
    seen = correlated(rng, 3000, shape[1]).astype(np.float64)
    unseen = correlated(rng, 500, shape[1]).astype(np.float64)
    truth = unseen @ weight.T.astype(np.float64)

    def loss(decoded: np.ndarray) -> float:
        return float(np.square(unseen @ decoded.T.astype(np.float64) - truth).mean())

    plain = loss(nearest_codes(weight, levels).decode(shape[1]))
    compensated = loss(compensated_codes(weight, seen.T @ seen, levels).decode(shape[1]))
    assert compensated < 0.5 * plain


def test_white_inputs_gain_nothing_and_lose_nothing() -> None:
    rng = np.random.default_rng(2)
    weight = rng.standard_normal((16, 64)).astype(np.float32)
    plain = nearest_codes(weight, 15)
    compensated = compensated_codes(weight, np.eye(64) * 1000, 15)
    np.testing.assert_array_equal(plain.codes, compensated.codes)
    np.testing.assert_array_equal(plain.scale, compensated.scale)


@pytest.mark.parametrize("moments", [np.zeros((40, 40)), np.full((40, 40), np.nan)])
def test_inputs_without_information_fall_back_to_rounding(moments: np.ndarray) -> None:
    weight = np.random.default_rng(4).standard_normal((4, 40)).astype(np.float32)
    plain = nearest_codes(weight, 15)
    np.testing.assert_array_equal(plain.codes, compensated_codes(weight, moments, 15).codes)


def test_dead_and_dominant_channels() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((400, 64))
    x[:, 3] = 0
    x[:, 9] *= 1000
    weight = rng.standard_normal((8, 64)).astype(np.float32)
    decoded = compensated_codes(weight, x.T @ x, 127).decode(64)
    assert np.isfinite(decoded).all()
    truth = x @ weight.T.astype(np.float64)
    assert np.abs(x @ decoded.T - truth).max() < 0.02 * np.abs(truth).max()


def test_correction_undoes_a_linear_drift() -> None:
    """Inputs arrive scaled by 1.1; the corrected weight gives the outputs meant."""
    rng = np.random.default_rng(6)
    true = correlated(rng, 2000, 48).astype(np.float64)
    weight = rng.standard_normal((10, 48)).astype(np.float32)
    seen = 1.1 * true
    missing = (true - seen) @ weight.T.astype(np.float64)
    better = corrected(weight, seen.T @ seen, missing.T @ seen)
    before = np.square(missing).mean()
    after = np.square(true @ weight.T - seen @ better.T.astype(np.float64)).mean()
    assert after < 0.05 * before
    np.testing.assert_array_equal(weight, corrected(weight, np.zeros((48, 48)), missing.T @ seen))
