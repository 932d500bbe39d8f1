"""Chooses the scale and minimum of each block of 32 weights."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from runtime_py.program import BLOCK

Floats = npt.NDArray[np.float32]
Halves = npt.NDArray[np.float16]

_TINY = np.float32(2.0**-24)
_ROWS = 4096


def pad_columns(weight: Floats) -> Floats:
    """[N, K] with the last column repeated up to a multiple of `BLOCK` columns."""
    return np.pad(weight, ((0, 0), (0, -weight.shape[1] % BLOCK)), mode="edge")


def fit_blocks(blocks: Floats, levels: int, importance: Floats) -> tuple[Halves, Halves]:
    """Scales and minima that minimise the weighted rounding error of each block.

    Args:
        blocks: f32 [N, 32], one block a row.
        levels: largest code.
        importance: f32 [32], weight of each column's squared error.

    Returns:
        ``(scale, low)``, f16 [N]. Both are rounded to f16 before the error is taken, so
        the codes make up for that rounding.
    """
    # The range is narrowed from either end: with few levels a clipped outlier costs less
    # than a coarse step for the other 31 weights.
    narrowest, count = (0.72, 8) if levels < 32 else (0.97, 4)
    shrinks = np.linspace(1.0, narrowest, count, dtype=np.float32)
    scale = np.empty(len(blocks), np.float16)
    low = np.empty(len(blocks), np.float16)
    for at in range(0, len(blocks), _ROWS):
        part = slice(at, at + _ROWS)
        scale[part], low[part] = _search(blocks[part], levels, importance, shrinks)
    return scale, low


def round_to_codes(weight: Floats, scale: Floats, low: Floats, levels: int) -> Floats:
    """Nearest codes, as floats; arguments broadcast."""
    codes: Floats = np.clip(np.rint((weight - low) / scale), 0, levels)
    return codes


def _search(x: Floats, levels: int, importance: Floats, shrinks: Floats) -> tuple[Halves, Halves]:
    smallest, largest = x.min(axis=1), x.max(axis=1)
    middle = (smallest + largest) / 2
    best = np.full(len(x), np.inf, np.float32)
    best_scale, best_low = np.zeros(len(x), np.float16), np.zeros(len(x), np.float16)
    for shrink_low in shrinks:
        low = (middle + (smallest - middle) * shrink_low).astype(np.float16)
        for shrink_high in shrinks:
            high = middle + (largest - middle) * shrink_high
            scale = _half_scale((high - low.astype(np.float32)) / levels)
            s, m = scale.astype(np.float32)[:, None], low.astype(np.float32)[:, None]
            difference = round_to_codes(x, s, m, levels) * s + m - x
            error = np.einsum("nk,nk,k->n", difference, difference, importance)
            better = error < best
            best = np.where(better, error, best)
            best_scale, best_low = (
                np.where(better, scale, best_scale),
                np.where(better, low, best_low),
            )
    return best_scale, best_low


def _half_scale(scale: Floats) -> Halves:
    """f16 scales, never zero: a constant block keeps its value in ``low`` alone."""
    return np.maximum(scale, _TINY).astype(np.float16)
