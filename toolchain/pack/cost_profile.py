"""Measures what a step costs, so that the first batches are planned well."""

from __future__ import annotations

import time
from array import array
from typing import Any

import numpy as np

from runtime_py.executors.base import ModelExecutor, SeqRow, Step

FEATURES = ("constant", "num_seqs", "num_tokens", "sum_len_sq")
_SHAPES = ((1, 4), (1, 16), (4, 16), (16, 8), (1, 64), (4, 48), (16, 24), (1, 192), (2, 256))
_REPEATS = 3


def measure(executor: ModelExecutor, max_len: int, vocab_size: int) -> dict[str, Any]:
    """The manifest's ``cost_profile``: steps of a few shapes, timed on one thread.

    Each shape's best time counts; the fit weighs relative errors.
    """
    limits = executor.limits
    rows: list[tuple[float, ...]] = []
    times: list[float] = []
    for seqs, length in _SHAPES:
        n = min(length, max_len)
        if seqs > limits.max_seqs or seqs * n > limits.max_tokens:
            continue
        ids = array("i", [(7 * i + 1) % vocab_size for i in range(seqs * n)])
        step = Step(ids, [SeqRow(i * n, n) for i in range(seqs)])
        executor.run(step)
        best = min(_timed(executor, step) for _ in range(_REPEATS))
        rows.append((1.0, seqs, seqs * n, seqs * n * n))
        times.append(best)
    t = np.array(times)
    coefficients = non_negative_least_squares(np.array(rows) / t[:, None], np.ones(len(t)))
    return {
        "host": executor.name,
        "threads": 1,
        "coefficients_ns": dict(zip(FEATURES, coefficients.round(2).tolist(), strict=True)),
    }


def non_negative_least_squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """argmin ||a x - b|| over x >= 0 for a handful of columns, by trying every support."""
    columns = a.shape[1]
    best, best_error = np.zeros(columns), float(b @ b)
    for mask in range(1, 1 << columns):
        support = [j for j in range(columns) if mask >> j & 1]
        x, *_ = np.linalg.lstsq(a[:, support], b, rcond=None)
        error = float(np.square(a[:, support] @ x - b).sum())
        if (x >= 0).all() and error < best_error:
            best, best_error = np.zeros(columns), error
            best[support] = x
    return best


def _timed(executor: ModelExecutor, step: Step) -> int:
    start = time.perf_counter_ns()
    executor.run(step)
    return time.perf_counter_ns() - start
