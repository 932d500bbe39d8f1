"""Runs the lowered program next to the graph it came from."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from runtime_py.errors import ArtifactError
from runtime_py.executors.base import ExecutorLimits, SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import KV_BLOCK, Program
from toolchain.lowering.probe import Prober

_LENGTHS: tuple[tuple[int, ...], ...] = ((5, 1, 3), (8, 2), (40,))
_TOLERANCE = 2e-4


def check_against_graph(
    program: Program,
    weights: Mapping[str, NDArray[np.float32]],
    prober: Prober,
    output: str,
) -> float:
    """Worst difference of token rows between ``program`` and the graph's ``output``,
    relative to the largest of them (at least 1).

    A decoder runs whole prompts through its cache, every row wanted.

    Raises:
        ArtifactError: they differ: the lowering misread the graph.
    """
    parts = {name: np.ascontiguousarray(w).data.cast("B") for name, w in weights.items()}
    executor = ReferenceExecutor.from_weights(
        program, MemoryWeights(program, parts), dtype="float32", limits=_limits(program)
    )
    worst = 0.0
    try:
        for lengths in _LENGTHS:
            if program.max_positions:
                lengths = tuple(min(n, program.max_positions) for n in lengths)
            probe, want = prober.sample(lengths, output)
            ids = probe.feeds["input_ids"][probe.valid]
            step = _step(array("i", ids.tolist()), lengths, cached=program.is_decoder)
            got = np.asarray(executor.run(step).output)
            expected = np.asarray(want, np.float64)[probe.valid]
            size = max(1.0, float(np.abs(expected).max()))
            worst = max(worst, float(np.abs(got - expected).max()) / size)
    finally:
        executor.close()
    if not worst <= _TOLERANCE:
        raise ArtifactError(
            f"the lowered program differs from its graph by {worst:.3g}, expected at most "
            f"{_TOLERANCE:g}; please report the model"
        )
    return worst


def _limits(program: Program) -> ExecutorLimits | None:
    """Room for the steps below; an encoder's default does."""
    if not program.is_decoder:
        return None
    tokens = max(sum(lengths) for lengths in _LENGTHS)
    blocks = max(sum(_blocks(n) for n in lengths) for lengths in _LENGTHS)
    return ExecutorLimits(tokens, len(_LENGTHS[0]), 1, 1, kv_blocks=blocks, max_wanted=tokens)


def _blocks(tokens: int) -> int:
    return -(-tokens // KV_BLOCK)


def _step(ids: array[int], lengths: tuple[int, ...], *, cached: bool) -> Step:
    starts = np.cumsum([0, *lengths]).tolist()
    seqs = [SeqRow(s, n) for s, n in zip(starts, lengths, strict=False)]
    if not cached:
        return Step(ids, seqs)
    first = np.cumsum([0, *(_blocks(n) for n in lengths)]).tolist()
    tables = [array("i", range(a, b)) for a, b in itertools.pairwise(first)]
    return Step(ids, seqs, block_tables=tables, wanted=range(len(ids)))
