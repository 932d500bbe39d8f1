"""What a step costs, measured: coefficients of the cost model, and how much times scatter."""

from __future__ import annotations

import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runtime_py.batching import StepShape
from runtime_py.errors import InvalidInput
from runtime_py.executors.base import ModelExecutor, SamplingRow, SeqRow, Step
from runtime_py.program import KV_BLOCK
from toolchain.pack.cost_profile import non_negative_least_squares

FORMAT, VERSION = "volery-profile", 1
COEFFICIENTS = ("constant", "threads", "num_seqs", "num_tokens", "sum_len_sq", "kv_tokens")

_ENCODER = ((1, 8), (1, 32), (1, 128), (4, 16), (4, 64), (16, 8), (16, 32), (2, 256), (64, 8))
"""(sequences, tokens of each)"""
_DECODER = (
    *((n, 1, context) for n in (1, 4, 16, 32) for context in (32, 256)),
    (1, 1, 1000),
    *((1, tokens, 0) for tokens in (16, 64, 256)),
    (1, 64, 512),
    (4, 32, 64),
)
"""(sequences, tokens of each in this step, tokens before them)"""


def measure_profile(
    executor: ModelExecutor,
    *,
    model: str,
    vocab_size: int,
    max_tokens: int,
    repeats: int = 7,
    progress: Callable[[float], object] = lambda share: None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, Any]:
    """Time steps of many shapes and fit the cost model of `runtime_py.batching` to them.

    Each shape counts with its median and the fit weighs relative errors, so that a
    short step is predicted as well as a long one.

    Args:
        executor: on which steps run; it is not closed.
        model: the name to write down.
        max_tokens: of a sequence.
        repeats: steps of each shape and thread count, after one that does not count.
        progress: told the part that is done; what it raises ends the measurement.
        clock: nanoseconds.

    Returns:
        JSON: ``coefficients_ns`` (see `COEFFICIENTS`), ``noise`` (``relative``: standard
        deviation of a step's time over the median of its shape; ``p99``: the quotient
        that one step in a hundred exceeds), ``fit`` (relative error of the coefficients)
        and ``samples`` (every shape with its times in nanoseconds).

    Raises:
        InvalidInput: the executor holds too little for the shapes.
    """
    limits = executor.limits
    steps = [
        (shape, step)
        for threads in sorted({1, limits.threads})
        for shape, step in _steps(executor, vocab_size, max_tokens, threads)
    ]
    if len(steps) < len(COEFFICIENTS):
        raise InvalidInput(
            f"the backend runs {len(steps)} of the steps that a profile needs, expected at "
            f"least {len(COEFFICIENTS)}; load it with room for more tokens and sequences"
        )
    samples: list[tuple[StepShape, list[int]]] = []
    for done, (shape, step) in enumerate(steps):
        executor.run(step)
        times = []
        for i in range(repeats):
            started = clock()
            executor.run(step)
            times.append(clock() - started)
            progress((done + (i + 1) / repeats) / len(steps))
        samples.append((shape, times))
    coefficients, error = _fit(samples)
    ratios = [t / statistics.median(times) for _, times in samples for t in times]
    decoder = limits.kv_blocks > 0
    return {
        "format": FORMAT,
        "version": VERSION,
        "model": model,
        "host": executor.name,
        "variant": getattr(executor, "variant", None),
        "threads": limits.threads,
        "kind": "decoder" if decoder else "encoder",
        "max_tokens": max_tokens,
        "kv_blocks": limits.kv_blocks,
        "coefficients_ns": dict(zip(COEFFICIENTS, coefficients, strict=True)),
        "noise": {
            "relative": round(statistics.pstdev(ratios), 4),
            "p99": round(sorted(ratios)[max(-(-len(ratios) * 99 // 100), 1) - 1], 3),
        },
        "fit": {"mean_relative_error": round(error, 4)},
        "samples": [{**shape._asdict(), "ns": times} for shape, times in samples],
    }


def _steps(
    executor: ModelExecutor, vocab_size: int, max_tokens: int, threads: int
) -> Sequence[tuple[StepShape, Step]]:
    """The steps that the executor can run, with the shapes that the scheduler sees."""
    limits = executor.limits
    found = []
    shapes = _DECODER if limits.kv_blocks else [(n, tokens, 0) for n, tokens in _ENCODER]
    for seqs, wished, context in shapes:
        tokens = min(wished, max_tokens - context)
        length = context + tokens
        blocks = -(-length // KV_BLOCK)
        if tokens < 1 or seqs > limits.max_seqs or seqs * tokens > limits.max_tokens:
            continue
        if limits.kv_blocks and seqs * blocks > limits.kv_blocks:
            continue
        ids = array("i", [(7 * i + 1) % vocab_size for i in range(seqs * tokens)])
        rows = [SeqRow(i * tokens, tokens, context) for i in range(seqs)]
        shape = StepShape(seqs, seqs * tokens, seqs * tokens * length, 0, threads)
        step = Step(ids, rows, threads)
        if limits.kv_blocks:
            tables = [array("i", range(i * blocks, (i + 1) * blocks)) for i in range(seqs)]
            wanted = [(i + 1) * tokens - 1 for i in range(seqs)]
            step = Step(ids, rows, threads, tables, (), wanted, [SamplingRow()] * seqs)
            shape = shape._replace(kv_tokens=seqs * length)
        found.append((shape, step))
    return found


def _fit(samples: Sequence[tuple[StepShape, list[int]]]) -> tuple[list[float], float]:
    """Coefficients in the order of `COEFFICIENTS`, and their mean relative error."""
    rows, times = [], []
    for shape, measured in samples:
        k = shape.threads
        work = (shape.num_seqs, shape.num_tokens, shape.sum_len_sq, shape.kv_tokens)
        rows.append([1.0, k - 1.0, *(x / k for x in work)])
        times.append(statistics.median(measured))
    t = np.array(times)
    relative = np.array(rows) / t[:, None]
    fitted = non_negative_least_squares(relative, np.ones(len(t)))
    return fitted.round(2).tolist(), float(np.abs(relative @ fitted - 1.0).mean())
