"""Quantized GGUF weights in our block formats, without a second rounding.

What each block type becomes (see ``runtime_py/program/ops.py`` for our layouts):

========  ======  ==============================================================
GGUF      ours    why the values are the same
========  ======  ==============================================================
Q4_1      I4B32   ``d*q + m``: the same codes, nibble order, scale and min
Q4_0      I4B32   ``d*(q - 8)`` = ``q*d + (-8d)``; 8d only moves the exponent
Q5_1      I8B32   as Q4_1, five bits of the seven
Q5_0      I8B32   as Q4_0, with 16
Q8_0      S8B32   ``d*q``
Q4_K      I4B32   exact where ``d*sc`` and ``dmin*m`` fit f16, else their rounding
Q5_K      I8B32   as Q4_K
others    S8B32   rounded to the nearest of 255 values per block of 32
========  ======  ==============================================================

Wherever a value changes, `TensorImport` says by how much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType as Kind
from gguf.quants import dequantize

from runtime_py.errors import ArtifactUnsupported
from toolchain.sources.gguf.reader import GgufFile

BlockFormat = Literal["I4B32", "I8B32", "S8B32"]
BLOCK = 32
FLOAT_KINDS = (Kind.F32, Kind.F16, Kind.BF16, Kind.F64)
_CHUNK_ELEMENTS = 1 << 20

F32 = npt.NDArray[np.float32]
U8 = npt.NDArray[np.uint8]
RowIndex = slice | npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class BlockRows:
    """Rows of a weight in one of our formats.

    Attributes:
        format: which.
        codes: I4B32: u8 [N, K/2], byte i of a block's 16 with code i in the low nibble
            and code i + 16 in the high one; I8B32: u8 [N, K]; S8B32: i8 [N, K].
        scale: f16 [N, K/32].
        min: f16 [N, K/32], None for S8B32.
    """

    format: BlockFormat
    codes: npt.NDArray[np.uint8] | npt.NDArray[np.int8]
    scale: npt.NDArray[np.float16]
    min: npt.NDArray[np.float16] | None

    def dequantize(self) -> F32:
        """float32 [N, K]: a rounded multiply, then a rounded add."""
        n, blocks = self.scale.shape
        codes = unpack_nibbles(self.codes) if self.format == "I4B32" else self.codes
        values = codes.reshape(n, blocks, BLOCK).astype(np.float32)
        values *= self.scale.astype(np.float32)[..., None]
        if self.min is not None:
            values += self.min.astype(np.float32)[..., None]
        return values.reshape(n, blocks * BLOCK)

    def widened(self) -> BlockRows:
        """I4B32 as I8B32: the same codes, one a byte; I8B32 as it is."""
        if self.format != "I4B32":
            return self
        return BlockRows("I8B32", unpack_nibbles(self.codes), self.scale, self.min)


def unpack_nibbles(packed: npt.NDArray[np.uint8] | npt.NDArray[np.int8]) -> U8:
    """u8 [N, K/2] to codes u8 [N, K]."""
    n = packed.shape[0]
    halves = packed.astype(np.uint8, copy=False).reshape(n, -1, BLOCK // 2)
    return np.concatenate([halves & 15, halves >> 4], axis=2).reshape(n, -1)


def pack_nibbles(codes: U8) -> U8:
    """The inverse of `unpack_nibbles`."""
    n = codes.shape[0]
    blocks = codes.reshape(n, -1, 2, BLOCK // 2)
    return (blocks[:, :, 0] | blocks[:, :, 1] << 4).reshape(n, -1).astype(np.uint8)


def float_rows(gguf: GgufFile, name: str, index: RowIndex) -> F32:
    """float32 [rows, K] of the rows ``index`` of a tensor.

    Raises:
        ArtifactUnsupported: the ``gguf`` package cannot decode the block type.
    """
    info = gguf.tensors[name]
    raw = np.array(gguf.blocks(name)[index])
    if info.kind == Kind.F64:
        return raw.view(np.float64).astype(np.float32)
    try:
        return np.asarray(dequantize(raw, info.kind), np.float32)
    except NotImplementedError:
        raise ArtifactUnsupported(
            f"{gguf.path}: tensor {name!r} has block type {info.kind.name}, which cannot be "
            "decoded; convert the model to a common type such as Q8_0 or Q4_1"
        ) from None


def chunks(gguf: GgufFile, name: str) -> Iterator[slice]:
    """Row ranges of about a million values each, in order."""
    info = gguf.tensors[name]
    step = max(1, _CHUNK_ELEMENTS // info.columns)
    for row0 in range(0, info.rows, step):
        yield slice(row0, min(row0 + step, info.rows))


def block_rows(gguf: GgufFile, name: str, index: RowIndex) -> BlockRows:
    """The rows ``index`` of a quantized tensor in the format its block type maps to.

    Raises:
        ArtifactUnsupported: the block type cannot be decoded.
    """
    info = gguf.tensors[name]
    raw = np.array(gguf.blocks(name)[index])
    match info.kind:
        case Kind.Q4_0 | Kind.Q4_1 | Kind.Q5_0 | Kind.Q5_1:
            return _legacy(raw, info.kind)
        case Kind.Q8_0:
            blocks = raw.reshape(len(raw), -1, 34)
            codes = blocks[..., 2:].reshape(len(raw), -1).view(np.int8)
            return BlockRows("S8B32", codes, _f16(blocks[..., :2]), None)
        case Kind.Q4_K | Kind.Q5_K:
            return _k_quant(raw, info.kind)
        case _:
            return nearest_s8(float_rows(gguf, name, index))


def nearest_s8(weights: F32) -> BlockRows:
    """The nearest S8B32 of float32 [N, K], K a multiple of 32."""
    n = weights.shape[0]
    blocks = weights.reshape(n, -1, BLOCK)
    scale = (np.abs(blocks).max(axis=2) / np.float32(127)).astype(np.float16)
    step = scale.astype(np.float32)[..., None]
    codes = np.rint(np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0))
    return BlockRows("S8B32", codes.clip(-128, 127).astype(np.int8).reshape(n, -1), scale, None)


def _f16(pair: U8) -> npt.NDArray[np.float16]:
    """u8 [..., 2] as f16 [...]."""
    return np.ascontiguousarray(pair).view("<f2")[..., 0].astype(np.float16)


def _legacy(raw: U8, kind: Kind) -> BlockRows:
    """Q4_0, Q4_1, Q5_0, Q5_1: f16 d, (f16 m), (32 fifth bits), 16 bytes of nibbles."""
    n = raw.shape[0]
    has_min, five = kind in (Kind.Q4_1, Kind.Q5_1), kind in (Kind.Q5_0, Kind.Q5_1)
    at = 4 if has_min else 2
    size = at + (4 if five else 0) + BLOCK // 2
    blocks = raw.reshape(n, -1, size)
    scale = _f16(blocks[..., :2])
    if has_min:
        low = _f16(blocks[..., 2:4])
    else:
        with np.errstate(over="ignore"):  # beyond f16: TensorImport will call it inexact
            low = scale * np.float16(-16 if five else -8)
    packed = np.ascontiguousarray(blocks[..., -BLOCK // 2 :]).reshape(n, -1)
    if not five:
        return BlockRows("I4B32", packed, scale, low)
    fifth = np.unpackbits(blocks[..., at : at + 4], axis=2, bitorder="little")
    codes = unpack_nibbles(packed) | fifth.reshape(n, -1) << 4
    return BlockRows("I8B32", codes.astype(np.uint8), scale, low)


def _k_quant(raw: U8, kind: Kind) -> BlockRows:
    """Q4_K, Q5_K: f16 d and dmin, eight 6-bit (scale, min) pairs in 12 bytes, codes.

    Byte j < 4 holds scale j and byte 4 + j min j in their low six bits; the upper two
    bits complete scale and min 4 + j, whose low nibbles share byte 8 + j.
    """
    n = raw.shape[0]
    blocks = raw.reshape(n, -1, 176 if kind == Kind.Q5_K else 144)
    d, dmin = (_f16(blocks[..., i : i + 2]).astype(np.float32) for i in (0, 2))
    low, high, rest = (blocks[..., i : i + 4] for i in (4, 8, 12))
    scales = np.concatenate([low & 63, (rest & 15) | (low >> 6 << 4)], axis=2)
    mins = np.concatenate([high & 63, (rest >> 4) | (high >> 6 << 4)], axis=2)
    with np.errstate(over="ignore"):
        scale = (d[..., None] * scales).reshape(n, -1).astype(np.float16)
        minimum = (-dmin[..., None] * mins).reshape(n, -1).astype(np.float16)
    # 32 bytes hold two sub-blocks: one in the low nibbles, the next in the high ones
    pairs = blocks[..., -128:].reshape(n, -1, 4, 1, BLOCK)
    codes = np.concatenate([pairs & 15, pairs >> 4], axis=3)
    if kind == Kind.Q4_K:
        return BlockRows("I4B32", pack_nibbles(codes.reshape(n, -1)), scale, minimum)
    fifth = blocks[..., 16:48].reshape(n, -1, 1, 1, BLOCK)
    shift = np.arange(8, dtype=np.uint8).reshape(1, 1, 4, 2, 1)
    codes = codes | (fifth >> shift & 1) << 4
    return BlockRows("I8B32", codes.reshape(n, -1).astype(np.uint8), scale, minimum)
