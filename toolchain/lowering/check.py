"""Runs the lowered program next to the graph it came from."""

from __future__ import annotations

from array import array
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from runtime_py.errors import ArtifactError
from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import Program
from toolchain.lowering.probe import Prober

_LENGTHS: tuple[tuple[int, ...], ...] = ((5, 1, 3), (8, 2), (40,))
_TOLERANCE = 2e-4


def check_against_graph(
    program: Program,
    weights: Mapping[str, NDArray[np.float32]],
    prober: Prober,
    output: str,
) -> float:
    """Worst difference of token vectors between ``program`` and the graph's ``output``,
    relative to the largest of them (at least 1).

    Raises:
        ArtifactError: they differ: the lowering misread the graph.
    """
    parts = {name: np.ascontiguousarray(w).data.cast("B") for name, w in weights.items()}
    executor = ReferenceExecutor.from_weights(
        program, MemoryWeights(program, parts), dtype="float32"
    )
    worst = 0.0
    try:
        for lengths in _LENGTHS:
            if program.max_positions:
                lengths = tuple(min(n, program.max_positions) for n in lengths)
            probe, want = prober.sample(lengths, output)
            ids = probe.feeds["input_ids"][probe.valid]
            starts = np.cumsum([0, *lengths])
            seqs = [SeqRow(int(s), n) for s, n in zip(starts, lengths, strict=False)]
            got = np.asarray(executor.run(Step(array("i", ids.tolist()), seqs)).output)
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
