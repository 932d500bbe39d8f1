"""Weights in shards: checked against the program once, then read row range by row range.

Nothing here holds a shard: a range is read from disk when a backend asks for it, so
loading peaks at the backend's own copy plus one range.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from runtime_py.artifact.safetensors import Entry, header_bytes, parse_header
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing
from runtime_py.executors.weights import ROW_MULTIPLE, RowRange, ranges, row_bytes
from runtime_py.program import BLOCK, Program, Tensor, TensorFormat

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_NUMPY_BYTES = 1 << 20


def part_specs(tensor: Tensor) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """(entry name, dtype, shape) of each stored part of ``tensor``, in `Tensor.parts` order."""
    name, shape = tensor.name, tensor.shape
    if tensor.format in (TensorFormat.F32, TensorFormat.F16):
        return ((name, tensor.format.name, shape),)
    rows, blocks = shape[0], -(-shape[1] // BLOCK)
    if tensor.format is TensorFormat.I8R:
        return ((name, "I8", shape), (f"{name}.scale", "F32", (rows,)))
    if tensor.format is TensorFormat.S8B32:
        return ((name, "I8", (rows, blocks * BLOCK)), (f"{name}.scale", "F16", (rows, blocks)))
    code_bytes = BLOCK if tensor.format is TensorFormat.I8B32 else BLOCK // 2
    return (
        (name, "U8", (rows, blocks * code_bytes)),
        (f"{name}.scale", "F16", (rows, blocks)),
        (f"{name}.min", "F16", (rows, blocks)),
    )


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows ``row0 .. row0 + rows - 1`` of a tensor: one shard, one offset per part."""

    shard: str
    row0: int
    rows: int
    begins: tuple[int, ...]


class ShardedWeights:
    """The `WeightSource` of an artifact.

    Args:
        directory: where the shards are.
        program: names, formats and shapes that the shards must hold exactly.
        headers: shard name -> entries, in shard order (see `read_headers`).

    Raises:
        ArtifactMissing: rows of a tensor are in no shard.
        ArtifactCorrupt: an entry has another dtype or shape than the program says, is
            split unevenly, or belongs to no tensor.
    """

    def __init__(
        self, directory: Path, program: Program, headers: Mapping[str, Mapping[str, Entry]]
    ) -> None:
        self._directory = directory
        self._program = program
        where = {
            name: (shard, e) for shard, entries in headers.items() for name, e in entries.items()
        }
        if len(where) != sum(len(entries) for entries in headers.values()):
            names = [name for entries in headers.values() for name in entries]
            twice = next(n for n in names if names.count(n) > 1)
            raise ArtifactCorrupt(f"tensor part {twice!r} is in two shards; export the model again")
        order = {shard: i for i, shard in enumerate(headers)}
        self._pieces = tuple(_locate(t, where, order) for t in program.tensors)
        if where:
            name, (shard, _) = next(iter(where.items()))
            raise ArtifactCorrupt(
                f"{shard} holds {name!r}, which program.bin does not use; the files of two "
                "exports are mixed: export the model again"
            )

    def iter_rows(self, tensor: int, max_bytes: int) -> Iterator[RowRange]:
        """See `WeightSource.iter_rows`; every range owns its bytes."""
        sizes = row_bytes(self._program.tensors[tensor])
        for piece in self._pieces[tensor]:
            with _open(self._directory / piece.shard) as f:
                for row0, rows in ranges(piece.rows, sum(sizes), max_bytes):
                    parts = [
                        _read(f, piece.shard, begin + row0 * size, rows * size)
                        for begin, size in zip(piece.begins, sizes, strict=True)
                    ]
                    yield RowRange(piece.row0 + row0, rows, *parts)

    def numpy(self, tensor: int) -> npt.NDArray[np.float32]:
        """Tensor number ``tensor``, dequantized to float32 in its logical shape."""
        from runtime_py.executors.reference.dequantize import dequantize

        return dequantize(self._program.tensors[tensor], self.iter_rows(tensor, _NUMPY_BYTES))


def read_headers(directory: Path, shards: Mapping[str, int]) -> dict[str, dict[str, Entry]]:
    """Headers of the shards, given as name -> bytes the file must have."""
    headers = {}
    for name, size in shards.items():
        with _open(directory / name) as f:
            length = header_bytes(f.read(8), name, size)
            headers[name] = parse_header(bytes(_read(f, name, 8, length)), name, size)
    return headers


def _locate(
    tensor: Tensor, where: dict[str, tuple[str, Entry]], order: Mapping[str, int]
) -> tuple[_Piece, ...]:
    """The pieces of ``tensor`` in row order; takes its entries out of ``where``."""
    specs = part_specs(tensor)
    total = tensor.shape[0]
    pieces: list[_Piece] = []
    row0 = 0
    while row0 < total:
        suffix = f"#{len(pieces)}" if pieces else ""
        found = []
        for name, dtype, shape in specs:
            if name + suffix not in where:
                raise ArtifactMissing(
                    f"tensor part {name + suffix!r} is in no shard ({row0} of {total} rows "
                    "found); copy the whole artifact or export it again"
                )
            shard, entry = where.pop(name + suffix)
            rows = entry.shape[0] if entry.shape else 0
            if (
                entry.dtype != dtype
                or entry.shape != (rows, *shape[1:])
                or not 0 < rows <= total - row0
                or (rows % ROW_MULTIPLE and row0 + rows != total)
            ):
                raise ArtifactCorrupt(
                    f"{shard}: {name + suffix!r} is {entry.dtype} {list(entry.shape)}, expected "
                    f"{dtype} {list(shape)} less {row0} rows; export the model again"
                )
            found.append((shard, rows, entry.begin))
        shard, rows, _ = found[0]
        if any(f[:2] != (shard, rows) for f in found) or (
            pieces and order[shard] <= order[pieces[-1].shard]
        ):
            raise ArtifactCorrupt(
                f"{shard}: the parts of {tensor.name + suffix!r} are split differently; "
                "export the model again"
            )
        pieces.append(_Piece(shard, row0, rows, tuple(f[2] for f in found)))
        row0 += rows
    return tuple(pieces)


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb", buffering=0)
    except OSError as e:
        raise ArtifactMissing(
            f"{path.name} cannot be read in {path.parent} ({e.strerror}); copy the whole "
            "artifact or export it again"
        ) from None


def _read(f: BinaryIO, name: str, begin: int, size: int) -> memoryview:
    """Exactly ``size`` bytes at ``begin``."""
    view = memoryview(bytearray(size))
    f.seek(begin)
    got = 0
    while got < size:
        n = f.readinto(view[got:])  # type: ignore[attr-defined]
        if not n:
            raise ArtifactCorrupt(
                f"{name} ends at byte {begin + got}, expected {begin + size}; it changed while "
                "it was read: copy or export it again"
            )
        got += n
    return view
