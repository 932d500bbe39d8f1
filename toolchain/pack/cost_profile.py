"""Measures what a step costs, so that the first batches are planned well."""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime_py.executors.base import ModelExecutor, SamplingRow, SeqRow, Step
from runtime_py.program import KV_BLOCK

FEATURES = ("constant", "num_seqs", "num_tokens", "sum_len_sq", "kv_tokens")
_SHAPES = ((1, 4), (1, 16), (4, 16), (16, 8), (1, 64), (4, 48), (16, 24), (1, 192), (2, 256))
_DECODER_SHAPES = (
    ((1, 31),),
    ((1, 400),),
    ((1, 60),) * 4,
    ((1, 200),) * 8,
    ((1, 20),) * 16,
    ((16, 0),),
    ((64, 0),),
    ((32, 300),),
    ((96, 0),),
    ((48, 16), *((1, 100),) * 4),
)
"""Steps as (tokens, context) of every sequence: decodes, prompts, chunks, and a mixture."""
_REPEATS, _DECODER_REPEATS = 3, 2
"""Timed runs of a step, after one that is not; a decoder's steps are so long that the
first counts too."""


def measure(executor: ModelExecutor, max_len: int, vocab_size: int) -> dict[str, Any]:
    """The manifest's ``cost_profile``: steps of a few shapes, timed on one thread.

    Each shape's best time counts; the fit weighs relative errors.
    """
    limits = executor.limits
    steps: list[Step] = []
    for seqs, length in _SHAPES:
        n = min(length, max_len)
        if seqs > limits.max_seqs or seqs * n > limits.max_tokens:
            continue
        ids = array("i", [(7 * i + 1) % vocab_size for i in range(seqs * n)])
        step = Step(ids, [SeqRow(i * n, n) for i in range(seqs)])
        steps.append(step)
    return _fitted(executor, steps)


def measure_decoder(executor: ModelExecutor, max_context: int, vocab_size: int) -> dict[str, Any]:
    """The same of a decoder: steps that sample greedily, on a cache of any content."""
    limits = executor.limits
    steps: list[Step] = []
    for shape in _DECODER_SHAPES:
        ids, seqs, wanted = array("i"), list[SeqRow](), list[int]()
        tables: list[array[int]] = []
        blocks = 0
        for tokens, context in shape:
            seqs.append(SeqRow(len(ids), tokens, context))
            ids.extend((7 * i + 1) % vocab_size for i in range(tokens))
            wanted.append(len(ids) - 1)
            count = -(-(tokens + context) // KV_BLOCK)
            tables.append(array("i", range(blocks, blocks + count)))
            blocks += count
        longest = max(tokens + context for tokens, context in shape)
        if longest <= max_context and blocks <= limits.kv_blocks and len(ids) <= limits.max_tokens:
            sampling = [SamplingRow()] * len(seqs)
            steps.append(Step(ids, seqs, 1, tables, (), wanted, sampling))
    return _fitted(executor, steps)


def _fitted(executor: ModelExecutor, steps: Sequence[Step]) -> dict[str, Any]:
    decoder = executor.limits.kv_blocks > 0
    repeats = _DECODER_REPEATS if decoder else _REPEATS
    times: list[float] = []
    for step in steps:
        if not decoder:
            executor.run(step)
        times.append(min(_timed(executor, step) for _ in range(repeats)))
    features = FEATURES if decoder else FEATURES[:-1]
    rows = np.array([_features(step, decoder) for step in steps])
    t = np.array(times)
    coefficients = non_negative_least_squares(rows / t[:, None], np.ones(len(t)))
    return {
        "host": executor.name,
        "threads": 1,
        "coefficients_ns": dict(zip(features, coefficients.round(2).tolist(), strict=True)),
    }


def _features(step: Step, decoder: bool) -> list[float]:
    """What the cost model counts of a step (`StepShape`), behind a constant."""
    lengths = [(row.num_tokens, row.num_tokens + row.context_len) for row in step.seqs]
    pairs = sum(tokens * length for tokens, length in lengths)
    shape = [1.0, len(lengths), len(step.token_ids), pairs]
    return [*shape, sum(length for _, length in lengths)] if decoder else shape


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
