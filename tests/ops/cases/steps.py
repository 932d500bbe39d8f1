"""Cases of several steps: what a decoder computes over its cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.executors.base import (
    ExecutorLimits,
    KVFormat,
    ModelExecutor,
    Sampled,
    Step,
    StepResult,
)
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import Program
from tests.ops.cases.builder import Builder, Floats
from tests.ops.cases.paged import Paged

Output = Floats | list[Sampled]
"""Of one step: logits [wanted, vocabulary], or the tokens when it samples."""


@dataclass(frozen=True)
class StepsCase:
    """A decoder, the steps it runs in order, and what each gives.

    Attributes:
        truth: every step's output by a formula that shares nothing with the reference
            executor; rows that are not finite are compared by their status only.
        statuses: every step's.
    """

    name: str
    program: Program
    parts: dict[str, npt.NDArray[Any]]
    steps: tuple[Step, ...]
    kv_blocks: int
    truth: Callable[[], Sequence[Output]]
    statuses: tuple[bytes, ...]
    atol: float = 1e-5
    rtol: float = 1e-5
    kv_format: KVFormat = "f32"
    cache: dict[str, list[Output]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def limits(self) -> ExecutorLimits:
        """The least that all steps fit in."""
        return ExecutorLimits(
            max_tokens=max(len(s.token_ids) for s in self.steps),
            max_seqs=max(len(s.seqs) for s in self.steps),
            threads=1,
            concurrent_steps=1,
            kv_blocks=self.kv_blocks,
            max_wanted=max(1, *(len(s.wanted) for s in self.steps)),
        )

    def weights(self) -> MemoryWeights:
        return MemoryWeights(
            self.program, {n: memoryview(a).cast("B") for n, a in self.parts.items()}
        )

    def expected(self) -> list[Output]:
        """The float64 reference executor's outputs."""
        if "expected" not in self.cache:
            executor = ReferenceExecutor.from_weights(
                self.program, self.weights(), limits=self.limits, kv_format=self.kv_format
            )
            self.cache["expected"] = [output for output, _ in self.run(executor)]
        return self.cache["expected"]

    def run(self, executor: ModelExecutor, threads: int = 1) -> list[tuple[Output, bytes]]:
        """Every step's output and statuses on ``executor``."""
        done = []
        for s in self.steps:
            step = Step(
                s.token_ids, s.seqs, threads, s.block_tables, s.copies, s.wanted, s.sampling
            )
            result = executor.run(step)
            done.append((output_of(self.program, step, result), result.statuses))
        return done


def output_of(program: Program, step: Step, result: StepResult) -> Output:
    """What ``step`` gave, as `Output`."""
    if step.sampling is not None:
        assert not result.output.nbytes
        return list(result.sampled)
    assert result.sampled == ()
    logits = np.asarray(result.output, np.float64)
    return logits.reshape(len(step.wanted), program.output.width)


def steps_case(
    name: str,
    builder: Builder,
    output: int,
    paged: Paged,
    truth: Callable[[], Sequence[Output]],
    *,
    statuses: Sequence[bytes] | None = None,
    **fields: Any,
) -> StepsCase:
    return StepsCase(
        name,
        builder.program(output),
        builder.parts,
        tuple(paged.steps),
        paged.blocks,
        truth,
        tuple(statuses or (bytes(len(s.seqs)) for s in paged.steps)),
        **fields,
    )


def rows_of(paged: Paged, values: Sequence[Floats], width: int) -> list[Output]:
    """Every step's wanted rows, filled up with zeros to ``width``.

    Args:
        values: per sequence, the values of all its positions.
    """
    out: list[Output] = []
    for rows in paged.rows:
        step = np.zeros((len(rows), width))
        for i, (sequence, position) in enumerate(rows):
            value = values[sequence][position]
            step[i, : len(value)] = value
        out.append(step)
    return out
