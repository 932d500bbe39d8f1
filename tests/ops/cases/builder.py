"""Builds tiny programs with their weights, by the names of the op table."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import (
    OP_SPECS,
    Op,
    OpKind,
    Program,
    Rows,
    Slot,
    Tensor,
    TensorFormat,
    validate,
)
from tests.ops.cases.formats import store

Floats = npt.NDArray[np.float64]


class Builder:
    """A program under construction; `add` takes an op's fields by name."""

    def __init__(self, vocab_size: int, max_positions: int = 0) -> None:
        self.vocab_size, self.max_positions = vocab_size, max_positions
        self.slots: list[Slot] = []
        self.tensors: list[Tensor] = []
        self.ops: list[Op] = []
        self.parts: dict[str, npt.NDArray[Any]] = {}

    def tokens(self, width: int) -> int:
        self.slots.append(Slot(Rows.TOKENS, width))
        return len(self.slots) - 1

    def seqs(self, width: int) -> int:
        self.slots.append(Slot(Rows.SEQS, width))
        return len(self.slots) - 1

    def picked(self, width: int) -> int:
        self.slots.append(Slot(Rows.PICKED, width))
        return len(self.slots) - 1

    def tensor(self, values: npt.ArrayLike, fmt: TensorFormat = TensorFormat.F32) -> int:
        """Store ``values``, quantized to ``fmt``."""
        values = np.asarray(values)
        name = f"t{len(self.tensors)}"
        self.tensors.append(Tensor(name, fmt, values.shape))
        for part, data in zip(self.tensors[-1].parts, store(values, fmt), strict=True):
            self.parts[part] = data
        return len(self.tensors) - 1

    def add(
        self, kind: OpKind, out: int, *, out2: int = -1, flags: int = 0, **fields: float
    ) -> int:
        """Append an op; fields that are not given are absent or zero. Returns ``out``."""
        spec = OP_SPECS[kind]

        def take(names: Sequence[str], default: float) -> tuple[Any, ...]:
            return tuple(fields.pop(n.removeprefix("?"), default) for n in names)

        op = Op(
            kind,
            out,
            take(spec.ins, -1),
            take(spec.tensors, -1),
            take(spec.uints, 0),
            tuple(float(v) for v in take(spec.floats, 0.0)),
            flags,
            out2,
        )
        assert not fields, f"{kind.name} has no {sorted(fields)}"
        self.ops.append(op)
        return out

    def input(self, table: npt.ArrayLike) -> int:
        """A token slot whose row for token id i is ``table[i]``."""
        table = np.asarray(table, np.float32)
        out = self.tokens(table.shape[1])
        return self.add(OpKind.EMBED, out, table=self.tensor(table), scale=1.0)

    def logits(self, x: int) -> int:
        """The wanted rows of token slot ``x``, filled up with zeros to the vocabulary.

        A decoder's output is as wide as its vocabulary; this makes any slot visible.
        """
        width = self.slots[x].width
        rows = self.add(OpKind.ROWS, self.picked(width), x=x)
        head = self.tensor(np.eye(self.vocab_size, width, dtype=np.float32))
        return self.add(OpKind.LINEAR, self.picked(self.vocab_size), x=rows, weight=head)

    def program(self, output: int) -> Program:
        """The finished program, as its bytes decode."""
        program = Program(
            tuple(self.slots),
            tuple(self.tensors),
            tuple(self.ops),
            output,
            self.vocab_size,
            self.max_positions,
        )
        return validate(Program.decode(program.encode()))


@dataclass(frozen=True)
class Case:
    """One op, on one set of rows.

    Attributes:
        truth: the expected output in float64 by a formula that shares nothing with the
            reference executor; non-finite rows are compared by their status only.
        statuses: of each sequence.
    """

    name: str
    program: Program
    parts: dict[str, npt.NDArray[Any]]
    step: Step
    truth: Callable[[], Floats]
    atol: float = 1e-5
    rtol: float = 1e-5
    statuses: bytes = b""
    cache: dict[str, Floats] = field(default_factory=dict, compare=False, repr=False)

    def weights(self) -> MemoryWeights:
        return MemoryWeights(
            self.program, {n: memoryview(a).cast("B") for n, a in self.parts.items()}
        )

    def expected(self) -> Floats:
        """The float64 reference executor's output."""
        if "expected" not in self.cache:
            executor = ReferenceExecutor.from_weights(self.program, self.weights())
            self.cache["expected"] = np.asarray(executor.run(self.step).output, np.float64)
        return self.cache["expected"]


def make_step(
    lengths: Sequence[int],
    ids: Sequence[int] | None = None,
    contexts: Sequence[int] = (),
    skips: Sequence[int] = (),
    threads: int = 1,
) -> Step:
    """Sequences of ``lengths`` back to back; ids count up from 0 unless given."""
    rows, at = [], 0
    for i, n in enumerate(lengths):
        rows.append(SeqRow(at, n, contexts[i] if contexts else 0, skips[i] if skips else 0))
        at += n
    return Step(array("i", range(at) if ids is None else ids), rows, threads)


def case(
    name: str,
    builder: Builder,
    output: int,
    lengths: Sequence[int],
    truth: Callable[[], npt.ArrayLike],
    *,
    ids: Sequence[int] | None = None,
    contexts: Sequence[int] = (),
    skips: Sequence[int] = (),
    atol: float = 1e-5,
    rtol: float = 1e-5,
    statuses: bytes | None = None,
) -> Case:
    return Case(
        name,
        builder.program(output),
        builder.parts,
        make_step(lengths, ids, contexts, skips),
        lambda: np.asarray(truth(), np.float64),
        atol,
        rtol,
        bytes(len(lengths)) if statuses is None else statuses,
    )


def normal(seed: int, *shape: int) -> npt.NDArray[np.float32]:
    """Standard normal f32 values, the same for the same seed."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
