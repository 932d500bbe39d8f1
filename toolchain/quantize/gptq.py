"""Rounding with error compensation (GPTQ).

E. Frantar, S. Ashkboos, T. Hoefler, D. Alistarh, "GPTQ: Accurate Post-Training
Quantization for Generative Pre-trained Transformers", 2022. Columns are rounded one
after the other, and what a column's rounding does to the layer's output is made up for
by the columns still to come, weighed by the inverse of the inputs' second moments.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from runtime_py.program import BLOCK
from toolchain.quantize.blocks import fit_blocks, pad_columns, round_to_codes
from toolchain.quantize.formats import BlockCodes

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


RIDGE = 0.1
_DAMPING = 0.01
"""Share of the mean second moment that is added to the diagonal, as in the paper."""


def compensated_codes(weight: Floats, moments: Doubles, levels: int) -> BlockCodes:
    """Codes of ``weight`` that keep ``x @ weight.T`` for inputs like the calibration's.

    Args:
        weight: f32 [N, K].
        moments: f64 [K, K], the sum of ``outer(x, x)`` over calibration rows x.
        levels: largest code (15 or 127).

    Blocks with the strongest inputs come first, and within a block the strongest columns:
    what is rounded early can be made up for by all that follows. Each block's scale and
    minimum are fitted when its turn comes, to the weights as compensation left them.
    """
    columns = weight.shape[1]
    w = pad_columns(weight)
    rows, padded = w.shape
    order = _strongest_first(moments, padded)
    upper = _inverse_factor(moments, order)
    w = np.ascontiguousarray(w[:, order])
    codes = np.empty((rows, padded // BLOCK, BLOCK), np.uint8)
    scales = np.empty((rows, padded // BLOCK), np.float16)
    lows = np.empty((rows, padded // BLOCK), np.float16)
    for block, start in enumerate(range(0, padded, BLOCK)):
        stop = start + BLOCK
        current = np.ascontiguousarray(w[:, start:stop])
        # The error that a column leaves behind is its rounding over the factor's diagonal.
        importance = (1 / np.square(np.diagonal(upper)[start:stop])).astype(np.float32)
        importance[order[start:stop] >= columns] = 0
        scale16, low16 = fit_blocks(current, levels, importance / max(importance.max(), 1e-30))
        scale, low = scale16.astype(np.float32), low16.astype(np.float32)
        errors = np.empty_like(current)
        for j in range(BLOCK):
            row = upper[start + j, start + j : stop].astype(np.float32)
            q = round_to_codes(current[:, j], scale, low, levels)
            codes[:, block, j] = q.astype(np.uint8)
            errors[:, j] = (current[:, j] - (q * scale + low)) / row[0]
            current[:, j + 1 :] -= np.outer(errors[:, j], row[1:])
        scales[:, block], lows[:, block] = scale16, low16
        w[:, stop:] -= errors @ upper[start:stop, stop:].astype(np.float32)
    inverse = np.argsort(order)
    codes = codes.reshape(rows, padded)[:, inverse].reshape(codes.shape)
    place = inverse[::BLOCK] // BLOCK
    return BlockCodes(codes, scales[:, place], lows[:, place])


def corrected(weight: Floats, moments: Doubles, drift: Doubles) -> Floats:
    """The weight that best makes up for errors of earlier layers, as far as x shows them.

    The ridge regression of the missing output on the inputs, with the same damping as the
    rounding: ``weight + drift @ inv(moments + damping)``.

    Args:
        weight: f32 [N, K].
        moments, drift: f64 [K, K] and [N, K], sums over calibration rows of
            ``outer(x, x)`` and ``outer(missing output, x)``.
    """
    mean = float(np.mean(np.diagonal(moments)))
    if not mean > 0:
        return weight
    damped = moments + RIDGE * mean * np.eye(len(moments))
    return weight + np.linalg.solve(damped, drift.T).T.astype(np.float32)


def nearest_codes(weight: Floats, levels: int, importance: Floats | None = None) -> BlockCodes:
    """Codes of ``weight`` [N, K] by plain rounding to fitted scales and minima.

    Args:
        importance: f32 [K], weight of each column's squared error (all alike if None).
    """
    w = pad_columns(weight)
    rows, padded = w.shape
    weights = np.zeros(padded, np.float32)
    weights[: weight.shape[1]] = 1 if importance is None else importance
    shape = (rows, padded // BLOCK)
    codes = np.empty((*shape, BLOCK), np.uint8)
    scales, lows = np.empty(shape, np.float16), np.empty(shape, np.float16)
    for block, start in enumerate(range(0, padded, BLOCK)):
        current = np.ascontiguousarray(w[:, start : start + BLOCK])
        scale, low = fit_blocks(current, levels, weights[start : start + BLOCK])
        s, m = scale.astype(np.float32)[:, None], low.astype(np.float32)[:, None]
        codes[:, block] = round_to_codes(current, s, m, levels).astype(np.uint8)
        scales[:, block], lows[:, block] = scale, low
    return BlockCodes(codes, scales, lows)


def _strongest_first(moments: Doubles, padded: int) -> npt.NDArray[np.intp]:
    """Column order by falling input energy that keeps the blocks of 32 together."""
    energy = np.zeros(padded)
    energy[: len(moments)] = np.nan_to_num(np.diagonal(moments))
    blocks = energy.reshape(-1, BLOCK)
    within = np.argsort(-blocks, axis=1, kind="stable")
    columns = within + BLOCK * np.arange(len(blocks))[:, None]
    return columns[np.argsort(-blocks.sum(axis=1), kind="stable")].reshape(-1)


def _inverse_factor(moments: Doubles, order: npt.NDArray[np.intp]) -> Doubles:
    """Upper Cholesky factor U of the damped inverse, ``inv(H) = U.T @ U``, in ``order``."""
    columns, padded = len(moments), len(order)
    h = np.eye(padded)
    mean = float(np.mean(np.diagonal(moments)))
    if not mean > 0 or not np.isfinite(moments).all():
        return h  # inputs that were never seen: plain rounding
    h[:columns, :columns] = moments / mean
    h[np.diag_indices(columns)] += _DAMPING
    inverse = np.linalg.inv(h[np.ix_(order, order)])
    return np.asarray(np.linalg.cholesky((inverse + inverse.T) / 2, upper=True), np.float64)
