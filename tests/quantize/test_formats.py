"""The stored formats, decoded by formulas of the tests' own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.program import Tensor, TensorFormat
from toolchain.quantize.formats import encode, round_rows
from toolchain.quantize.gptq import nearest_codes

LEVELS = {TensorFormat.I8B32: 127, TensorFormat.I4B32: 15}


def decode(fmt: TensorFormat, parts: dict[str, np.ndarray], columns: int) -> np.ndarray:
    """``q * scale + min`` from the stored bytes, one weight at a time, in float64."""
    data, scale, low = (parts[n].astype(np.float64) for n in ("w", "w.scale", "w.min"))
    out = np.empty((len(data), columns))
    for n in range(len(data)):
        for k in range(columns):
            block, i = divmod(k, 32)
            if fmt is TensorFormat.I8B32:
                code = int(data[n, k])
            else:
                byte = int(data[n, block * 16 + i % 16])
                code = byte & 15 if i < 16 else byte >> 4
            out[n, k] = code * scale[n, block] + low[n, block]
    return out


@pytest.mark.parametrize("fmt", list(LEVELS))
@pytest.mark.parametrize("shape", [(3, 32), (5, 64), (8, 33), (1, 95), (2, 40)])
def test_block_codes_decode_to_what_was_meant(fmt: TensorFormat, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(7)
    weight = rng.standard_normal(shape).astype(np.float32) + 0.3
    codes = nearest_codes(weight, LEVELS[fmt])
    parts = codes.parts(Tensor("w", fmt, shape))
    blocks = -(-shape[1] // 32)
    assert parts["w"].dtype == np.uint8
    assert parts["w"].shape == (shape[0], blocks * (32 if fmt is TensorFormat.I8B32 else 16))
    assert parts["w.scale"].dtype == parts["w.min"].dtype == np.float16
    assert parts["w.scale"].shape == parts["w.min"].shape == (shape[0], blocks)
    if fmt is TensorFormat.I8B32:
        assert parts["w"].max() <= 127
    decoded = decode(fmt, parts, shape[1])
    np.testing.assert_allclose(codes.decode(shape[1]), decoded, atol=1e-6)
    # Within half a step of the truth, but for clipped outliers and the f16 minimum.
    step = np.repeat(parts["w.scale"].astype(np.float64), 32, axis=1)[:, : shape[1]]
    within = np.abs(decoded - weight) <= 0.51 * step + 1e-3
    assert within.mean() > 0.9
    if fmt is TensorFormat.I8B32:
        assert np.abs(decoded - weight).max() <= 4 * step.max()


@settings(max_examples=60)
@given(
    st.integers(1, 4),
    st.integers(1, 70),
    st.sampled_from([127, 15]),
    st.sampled_from([0.0, 1e-30, 1e-8, 1e-3, 1.0, 100.0]),
    st.integers(0, 2**32 - 1),
)
def test_any_weight_keeps_its_range(
    rows: int, columns: int, levels: int, magnitude: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    weight = (rng.standard_normal((rows, columns)) * magnitude).astype(np.float32)
    weight[0, : columns // 2] = magnitude  # constant runs
    codes = nearest_codes(weight, levels)
    decoded = codes.decode(columns)
    assert np.isfinite(decoded).all()
    assert codes.codes.max() <= levels
    padded = np.pad(weight, ((0, 0), (0, -columns % 32)), mode="edge").reshape(rows, -1, 32)
    span = (padded.max(axis=2) - padded.min(axis=2)).repeat(32, axis=1)[:, :columns]
    error = np.abs(decoded - weight)
    assert (error <= span + 2e-3 * np.abs(weight).max() + 2e-6).all()


def test_rows_round_to_within_half_a_step() -> None:
    rng = np.random.default_rng(3)
    weight = rng.standard_normal((50, 48)).astype(np.float32)
    weight[7] = 0
    parts = encode(Tensor("t", TensorFormat.I8R, (50, 48)), weight)
    codes, scale = parts["t"], parts["t.scale"]
    assert codes.dtype == np.int8
    assert np.abs(codes.astype(int)).max() <= 127
    assert scale.dtype == np.float32
    assert scale.shape == (50,)
    decoded = codes.astype(np.float64) * scale[:, None].astype(np.float64)
    plain_scale = np.abs(weight).max(axis=1, keepdims=True) / 127
    plain_scale[7] = 1
    plain = np.rint(weight / plain_scale) * plain_scale
    assert np.square(decoded - weight).sum() <= np.square(plain - weight).sum()
    np.testing.assert_array_equal(decoded[7], 0)


def test_f16_and_f32_are_the_plain_numbers() -> None:
    weight = np.array([[1.5, -2.25], [0.1, 7.0]], np.float32)
    for fmt, dtype in ((TensorFormat.F32, np.float32), (TensorFormat.F16, np.float16)):
        (stored,) = encode(Tensor("t", fmt, (2, 2)), weight).values()
        np.testing.assert_array_equal(stored, weight.astype(dtype))


def test_row_codes_recover_exact_grids() -> None:
    rng = np.random.default_rng(5)
    grid = rng.integers(-127, 128, (6, 40)).astype(np.float32)
    grid[:, 0] = 127
    codes, scale = round_rows(grid * np.float32(0.03125))
    np.testing.assert_allclose(codes * scale[:, None], grid * 0.03125, rtol=1e-6)
