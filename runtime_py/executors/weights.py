"""Where a backend gets its weights: row ranges of host-neutral bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from runtime_py.errors import ArtifactMissing
from runtime_py.program import Program, Tensor, TensorFormat

ROW_MULTIPLE = 8
"""Row ranges start at a multiple of this, so that a backend can pack panel by panel."""


class RowRange(NamedTuple):
    """Rows ``row0 .. row0 + rows - 1`` of a tensor, as stored (see `TensorFormat`).

    ``scale`` and ``min`` are None for formats without that part.
    """

    row0: int
    rows: int
    data: memoryview
    scale: memoryview | None = None
    min: memoryview | None = None


class WeightSource(Protocol):
    def iter_rows(self, tensor: int, max_bytes: int) -> Iterator[RowRange]:
        """All rows of tensor number ``tensor`` in order, at most about ``max_bytes`` a range.

        Every range but the last holds a multiple of `ROW_MULTIPLE` rows. A 1-D tensor
        has ``shape[0]`` rows of one element.
        """
        ...


def row_bytes(tensor: Tensor) -> tuple[int, ...]:
    """Bytes of one row in each of the tensor's parts, in the order of `Tensor.parts`."""
    cols = 1
    for d in tensor.shape[1:]:
        cols *= d
    blocks = -(-cols // 32)
    match tensor.format:
        case TensorFormat.F32:
            return (4 * cols,)
        case TensorFormat.F16:
            return (2 * cols,)
        case TensorFormat.I8R:
            return (cols, 4)
        case TensorFormat.I8B32:
            return (32 * blocks, 2 * blocks, 2 * blocks)
        case TensorFormat.S8B32:
            return (32 * blocks, 2 * blocks)
        case TensorFormat.I4B32:
            return (16 * blocks, 2 * blocks, 2 * blocks)


def ranges(rows: int, bytes_per_row: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Split ``rows`` into (row0, count) pieces that follow the rules of `WeightSource`."""
    step = max(ROW_MULTIPLE, max_bytes // max(bytes_per_row, 1) // ROW_MULTIPLE * ROW_MULTIPLE)
    for row0 in range(0, rows, step):
        yield row0, min(step, rows - row0)


class MemoryWeights:
    """A `WeightSource` over whole parts in memory: part name -> contiguous bytes-like."""

    def __init__(self, program: Program, parts: Mapping[str, memoryview | bytes]) -> None:
        self._program = program
        self._parts = {name: memoryview(data).cast("B") for name, data in parts.items()}

    def iter_rows(self, tensor: int, max_bytes: int) -> Iterator[RowRange]:
        t = self._program.tensors[tensor]
        sizes = row_bytes(t)
        parts = []
        for name, size in zip(t.parts, sizes, strict=True):
            if name not in self._parts:
                raise ArtifactMissing(f"tensor part {name!r} is missing from the weights")
            if len(self._parts[name]) != size * t.shape[0]:
                raise ArtifactMissing(
                    f"tensor part {name!r} has {len(self._parts[name])} bytes, "
                    f"expected {size * t.shape[0]}"
                )
            parts.append(self._parts[name])
        for row0, rows in ranges(t.shape[0], sum(sizes), max_bytes):
            yield RowRange(
                row0,
                rows,
                *(
                    p[row0 * size : (row0 + rows) * size]
                    for p, size in zip(parts, sizes, strict=True)
                ),
            )
