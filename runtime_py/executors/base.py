"""The step: the only way into a backend (docs/design.md, 3.3)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable


class SeqRow(NamedTuple):
    """One sequence of a step.

    Attributes:
        first_token: index of its first token in the step's ``token_ids``.
        num_tokens: tokens it has in this step (at least 1).
        context_len: its tokens that ran in earlier steps; 0 for an encoder. Token i has
            position ``context_len + i``.
        pool_skip: leading tokens that pooling leaves out (a prompt that the model's
            pooling excludes); less than ``num_tokens``.
    """

    first_token: int
    num_tokens: int
    context_len: int = 0
    pool_skip: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of the whole program over T packed tokens of S sequences.

    Attributes:
        token_ids: ``array('i')`` of T ids. Sequences lie back to back, in order,
            without padding: ``seqs[i].first_token`` is the sum of the earlier lengths.
        seqs: S rows.
        threads: how many of the executor's threads run this step; results do not
            depend on it.
    """

    token_ids: array[int]
    seqs: Sequence[SeqRow]
    threads: int = 1


class SeqStatus(IntEnum):
    OK = 0
    NON_FINITE = 1


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed.

    Attributes:
        output: C-contiguous f32 memoryview [rows, width] with ``format == 'f'``; rows are
            sequences, or tokens when the program's output slot holds tokens. Owned by
            the result: a later step does not change it.
        statuses: one `SeqStatus` per sequence, as bytes.
        device_ns: time inside the backend.
    """

    output: memoryview[float]
    statuses: bytes
    device_ns: int


@dataclass(frozen=True, slots=True)
class ExecutorLimits:
    """What one step may hold, fixed at load.

    Attributes:
        max_tokens: most tokens in a step.
        max_seqs: most sequences in a step.
        threads: threads in the pool.
        concurrent_steps: most steps in flight at once.
    """

    max_tokens: int
    max_seqs: int
    threads: int
    concurrent_steps: int


@runtime_checkable
class ModelExecutor(Protocol):
    """A backend with a loaded model. `run` and `submit` may be mixed.

    A step outside the limits, with an id outside the vocabulary or a length past the
    program's positions raises `InvalidInput` before any work. A backend that dies
    raises `DeviceLost` from every call in flight and every later one.
    """

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> ExecutorLimits: ...

    def run(self, step: Step) -> StepResult:
        """Execute ``step`` on the calling thread (plus helpers) and return its result."""
        ...

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        """Start ``step`` and return; ``done`` is called once, from any thread.

        At most ``limits.concurrent_steps`` steps may be in flight.
        """
        ...

    def close(self) -> None:
        """Free everything. Idempotent; waits for steps in flight."""
        ...
