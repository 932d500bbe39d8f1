"""Find the exact codes of a weight row by what the row holds.

Between the GGUF file and the quantizer lie a torch module, an exported graph and a
lowering that concatenates q, k and v and reorders rows. Names do not survive that; the
float32 content of a row does. So rows are looked up by a hash of their content, and a
hit counts only after the whole row has been compared.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from toolchain.sources.gguf.exact import (
    F32,
    FLOAT_KINDS,
    BlockFormat,
    BlockRows,
    block_rows,
    chunks,
    float_rows,
)
from toolchain.sources.gguf.reader import GgufFile


@dataclass(frozen=True, slots=True)
class TensorImport:
    """What importing one quantized tensor costs.

    Attributes:
        name: GGUF name.
        kind: its block type, such as ``Q4_1``.
        format: ours.
        exact: every value is the same float32.
        max_error: largest absolute difference.
        mean_error: mean absolute difference.
        relative_error: RMS difference over RMS value.
    """

    name: str
    kind: str
    format: BlockFormat
    exact: bool
    max_error: float
    mean_error: float
    relative_error: float


@dataclass(frozen=True, slots=True)
class Found:
    """Rows found in the file.

    Attributes:
        rows: their codes, in the order asked for.
        exact: they dequantize to exactly what was asked for.
        tensors: the GGUF tensors they come from.
    """

    rows: BlockRows
    exact: bool
    tensors: tuple[str, ...]


class BlockImport:
    """The quantized tensors of a GGUF file, by content.

    Holds 16 bytes per row; codes are decoded from the file when they are asked for.

    Attributes:
        report: one entry per quantized tensor, in file order.
    """

    def __init__(self, gguf: GgufFile) -> None:
        """Hash every row, and measure what each tensor's import loses.

        Raises:
            ArtifactUnsupported: a block type that cannot be decoded.
        """
        self._gguf = gguf
        self.report: list[TensorImport] = []
        keys: list[npt.NDArray[np.uint64]] = []
        for name, info in gguf.tensors.items():
            if info.kind in FLOAT_KINDS or len(info.shape) < 2:
                continue
            keys.append(self._scan(name))
        key = np.concatenate([np.empty(0, np.uint64), *keys])
        order = np.argsort(key, kind="stable")
        counts = [len(k) for k in keys]
        self._keys = key[order]
        self._tensor = np.repeat(np.arange(len(keys), dtype=np.uint32), counts)[order]
        rows = [np.empty(0, np.uint32), *(np.arange(n, dtype=np.uint32) for n in counts)]
        self._row = np.concatenate(rows)[order]

    def lookup(self, row: bytes) -> Found | None:
        """The row whose float32 little-endian bytes are ``row``."""
        return self.lookup_rows(np.frombuffer(row, "<f4").astype(np.float32)[None])

    def lookup_rows(self, weights: F32) -> Found | None:
        """All rows of float32 [N, K], in one format, or None where one is not in the file.

        A weight whose rows are I4B32 and I8B32 comes back as I8B32, which holds both
        exactly; any other mixture is None.
        """
        wanted = np.ascontiguousarray(weights, np.float32) + np.float32(0)
        places = self._match(wanted)
        if places is None:
            return None
        tensor, row = places
        parts: list[tuple[npt.NDArray[np.intp], BlockRows]] = []
        for t in np.unique(tensor):
            at = np.flatnonzero(tensor == t)
            parts.append((at, block_rows(self._gguf, self.report[t].name, row[at].astype(np.intp))))
        formats = {rows.format for _, rows in parts}
        if len(formats) > 1:
            if "S8B32" in formats:
                return None
            parts = [(at, rows.widened()) for at, rows in parts]
        used = [self.report[t] for t in np.unique(tensor)]
        return Found(
            _gather(parts, len(wanted)), all(t.exact for t in used), tuple(t.name for t in used)
        )

    def _scan(self, name: str) -> npt.NDArray[np.uint64]:
        """The rows' keys; appends to the report."""
        info = self._gguf.tensors[name]
        keys: list[npt.NDArray[np.uint64]] = []
        exact, largest, total, square, energy = True, 0.0, 0.0, 0.0, 0.0
        format_: BlockFormat = "S8B32"
        for index in chunks(self._gguf, name):
            truth = float_rows(self._gguf, name, index) + np.float32(0)
            ours = block_rows(self._gguf, name, index)
            format_ = ours.format
            keys.append(_row_keys(truth))
            with np.errstate(invalid="ignore"):
                value = ours.dequantize()
            if np.array_equal(value, truth):
                continue
            exact = False
            error = np.abs(value.astype(np.float64) - truth)
            largest = max(largest, float(error.max()))
            total += float(error.sum())
            square += float(np.square(error).sum())
            energy += float(np.square(truth, dtype=np.float64).sum())
        elements = info.rows * info.columns
        relative = (square / energy) ** 0.5 if energy else 0.0
        self.report.append(
            TensorImport(name, info.kind.name, format_, exact, largest, total / elements, relative)
        )
        return np.concatenate(keys)

    def _match(self, wanted: F32) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]] | None:
        """(tensor, row) of every wanted row, compared in full; None if one is missing."""
        keys = _row_keys(wanted)
        first = np.searchsorted(self._keys, keys, "left")
        last = np.searchsorted(self._keys, keys, "right")
        if np.any(first == last):
            return None
        at = first.copy()
        # A row that several tensors hold (all zeros, say) is taken from one that the
        # other rows come from anyway, so that it does not force another format.
        usual = np.unique(self._tensor[first[last - first == 1]])
        for i in np.flatnonzero(last - first > 1):
            same = np.isin(self._tensor[first[i] : last[i]], usual)
            at[i] += int(np.argmax(same)) if same.any() else 0
        for i in np.flatnonzero(~self._equal(at, wanted)):  # a collision of hashes
            others = np.arange(first[i], last[i])
            good = self._equal(others, np.repeat(wanted[i : i + 1], len(others), axis=0))
            if not good.any():
                return None
            at[i] = others[int(np.argmax(good))]
        return self._tensor[at], self._row[at]

    def _equal(self, at: npt.NDArray[np.intp], wanted: F32) -> npt.NDArray[np.bool_]:
        """Whether the rows at index entries ``at`` hold ``wanted``, row by row."""
        equal = np.zeros(len(at), np.bool_)
        for t in np.unique(self._tensor[at]):
            name = self.report[t].name
            if self._gguf.tensors[name].columns != wanted.shape[1]:
                continue
            mine = np.flatnonzero(self._tensor[at] == t)
            step = max(1, (1 << 20) // wanted.shape[1])
            for i in range(0, len(mine), step):
                piece = mine[i : i + step]
                held = float_rows(self._gguf, name, self._row[at[piece]].astype(np.intp))
                equal[piece] = (held == wanted[piece]).all(axis=1)
        return equal


def _row_keys(rows: F32) -> npt.NDArray[np.uint64]:
    """64-bit BLAKE2b of each row; rows hold no negative zero."""
    digests = b"".join(hashlib.blake2b(row, digest_size=8).digest() for row in rows)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def _gather(parts: list[tuple[npt.NDArray[np.intp], BlockRows]], n: int) -> BlockRows:
    """Rows of several tensors put where they belong."""
    one = parts[0][1]
    codes: npt.NDArray[Any] = np.empty((n, one.codes.shape[1]), one.codes.dtype)
    scale = np.empty((n, one.scale.shape[1]), np.float16)
    low = None if one.min is None else np.empty_like(scale)
    for at, rows in parts:
        codes[at], scale[at] = rows.codes, rows.scale
        if low is not None and rows.min is not None:
            low[at] = rows.min
    return BlockRows(one.format, codes, scale, low)
