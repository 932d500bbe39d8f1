"""Lays tensors out in safetensors shards (docs/design.md, 6.2)."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from runtime_py.artifact.manifest import MAX_SHARD_BYTES, shard_name
from runtime_py.artifact.safetensors import ITEM_BYTES
from runtime_py.artifact.weights import part_specs
from runtime_py.errors import ArtifactUnsupported
from runtime_py.executors.weights import ROW_MULTIPLE, row_bytes
from runtime_py.program import Program, Tensor
from toolchain.quantize.formats import Parts

_ENTRY_BYTES = 160  # generous: JSON of one entry besides its name
_FIRST_BYTES = 64


@dataclass(frozen=True, slots=True)
class _Entry:
    """Rows ``row0 .. row0 + rows - 1`` of one part, under ``name``."""

    name: str
    part: str
    dtype: str
    shape: tuple[int, ...]
    row0: int


@dataclass(slots=True)
class _Shard:
    entries: list[_Entry] = field(default_factory=list)
    bytes: int = _FIRST_BYTES


def write_shards(
    directory: Path, program: Program, parts: Parts, max_bytes: int = MAX_SHARD_BYTES
) -> list[str]:
    """Write every tensor of ``program`` into as few files of ``max_bytes`` as it takes.

    A tensor that does not fit in what is left of a shard goes on in the next one, split
    at a multiple of `ROW_MULTIPLE` rows, its parts alike.

    Returns:
        The files' names, in order.

    Raises:
        ArtifactUnsupported: a few rows alone exceed ``max_bytes``.
    """
    shards = _plan(program, max_bytes)
    names = [shard_name(i, len(shards)) for i in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        _write(directory / name, shard, parts)
    return names


def _plan(program: Program, max_bytes: int) -> list[_Shard]:
    shards = [_Shard()]
    for tensor in program.tensors:
        rows, row0, piece = tensor.shape[0], 0, 0
        bytes_per_row = sum(row_bytes(tensor))
        overhead = sum(len(json.dumps(p)) + _ENTRY_BYTES for p in tensor.parts)
        while row0 < rows:
            room = max_bytes - shards[-1].bytes - overhead
            count = min(rows - row0, max(room, 0) // bytes_per_row)
            if count < rows - row0:
                count -= count % ROW_MULTIPLE
            if count <= 0:
                if not shards[-1].entries:
                    raise ArtifactUnsupported(
                        f"{ROW_MULTIPLE} rows of tensor {tensor.name!r} have "
                        f"{ROW_MULTIPLE * bytes_per_row} bytes, a shard holds at most {max_bytes}"
                    )
                shards.append(_Shard())
                continue
            shards[-1].entries.extend(_entries(tensor, row0, count, piece))
            shards[-1].bytes += overhead + count * bytes_per_row
            row0, piece = row0 + count, piece + 1
    return shards


def _entries(tensor: Tensor, row0: int, rows: int, piece: int) -> Iterator[_Entry]:
    suffix = f"#{piece}" if piece else ""
    for part, dtype, shape in part_specs(tensor):
        yield _Entry(part + suffix, part, dtype, (rows, *shape[1:]), row0)


def _write(path: Path, shard: _Shard, parts: Mapping[str, np.ndarray]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    # Wide elements first keeps every tensor aligned to its element size.
    entries = sorted(shard.entries, key=lambda e: -ITEM_BYTES[e.dtype])
    for e in entries:
        size = ITEM_BYTES[e.dtype] * int(np.prod(e.shape, dtype=np.int64))
        header[e.name] = {"dtype": e.dtype, "shape": e.shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for e in entries:
            data = parts[e.part][e.row0 : e.row0 + e.shape[0]]
            f.write(np.ascontiguousarray(data, data.dtype.newbyteorder("<")).data)
