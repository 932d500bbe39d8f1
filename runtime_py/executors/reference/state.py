"""What the ops of one step see and change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime_py.executors.base import SeqRow
from runtime_py.executors.reference.cache import PagedCache
from runtime_py.program import Op, Program

Array = Any


@dataclass(slots=True)
class State:
    """What the ops of one step see.

    Attributes:
        xp: the array namespace.
        tensors: dequantized weights, by tensor index.
        token_ids, positions: integer arrays [T].
        block_tables: per sequence, an integer array of its blocks; of a decoder.
        wanted: integer array of the token rows that ROWS picks.
        cache: of a decoder.
        observe: called with every linear op's index and input rows.
        slots: the slots' rows, by slot index; zeros before they are written.
    """

    xp: Any
    dtype: Any
    program: Program
    tensors: Sequence[Array]
    token_ids: Array
    positions: Array
    seqs: Sequence[SeqRow]
    block_tables: Sequence[Array]
    wanted: Array
    cache: PagedCache | None
    quantize_activations: bool
    observe: Callable[[int, Array], None] | None
    slots: list[Array] = field(default_factory=list)

    def slot(self, op: Op, name: str) -> Array:
        index = op.slot(name)
        return None if index < 0 else self.slots[index]

    def tensor(self, op: Op, name: str) -> Array:
        index = op.tensor(name)
        return None if index < 0 else self.tensors[index]
