"""The lowering's intermediate form: fused ops over values, each written once.

Values become slots, and arrays become named tensors, only at the very end
(`toolchain.lowering.emit`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime_py.program import OpKind, Rows

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of a node and the name it had in the model ("" when it had none)."""

    array: Array
    hint: str = ""


@dataclass(slots=True, eq=False)
class Node:
    """One op over values; fields as in `runtime_py.program.ops.OP_SPECS`.

    ``modes`` is used by POOL only: one wire op is emitted per mode. ``out`` is -1 for a
    CACHE, which has none.
    """

    kind: OpKind
    out: int
    ins: dict[str, int] = field(default_factory=dict)
    tensors: dict[str, Weight] = field(default_factory=dict)
    uints: dict[str, int] = field(default_factory=dict)
    floats: dict[str, float] = field(default_factory=dict)
    flags: int = 0
    out2: int = -1
    modes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ValueType:
    rows: Rows
    width: int


class Ir:
    """Nodes in execution order and the types of the values between them."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.types: list[ValueType] = []
        self.output = -1
        self.notes: list[str] = []

    def value(self, rows: Rows, width: int) -> int:
        """A new value."""
        self.types.append(ValueType(rows, width))
        return len(self.types) - 1

    def width(self, value: int) -> int:
        return self.types[value].width

    def emit(
        self,
        kind: OpKind,
        width: int,
        ins: Mapping[str, int] | None = None,
        tensors: Mapping[str, Weight] | None = None,
        uints: Mapping[str, int] | None = None,
        floats: Mapping[str, float] | None = None,
        flags: int = 0,
        rows: Rows = Rows.TOKENS,
        modes: Iterable[int] = (),
    ) -> int:
        """Append a node that makes a new value; returns the value."""
        out = self.value(rows, width)
        self.nodes.append(
            Node(
                kind,
                out,
                dict(ins or {}),
                dict(tensors or {}),
                {k: int(v) for k, v in (uints or {}).items()},
                {k: float(v) for k, v in (floats or {}).items()},
                flags,
                modes=tuple(modes),
            )
        )
        return out

    def producer(self, value: int) -> Node:
        """The node that writes ``value``."""
        return next(n for n in self.nodes if value in (n.out, n.out2))

    def uses(self) -> dict[int, list[Node]]:
        """For each value the nodes that read it, in order, once per input."""
        found: dict[int, list[Node]] = {}
        for n in self.nodes:
            for v in n.ins.values():
                found.setdefault(v, []).append(n)
        return found

    def replace(self, old: int, new: int) -> None:
        """Let every reader of ``old`` read ``new``."""
        for n in self.nodes:
            for k, v in n.ins.items():
                if v == old:
                    n.ins[k] = new
        if self.output == old:
            self.output = new


def as_f32(array: Array) -> NDArray[np.float32]:
    """Contiguous f32 copy (or the array itself when it already is that)."""
    return np.ascontiguousarray(array, dtype=np.float32)
