"""Stores float weights in every tensor format, plainly: round to nearest, min to max."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.program import TensorFormat

Parts = tuple[npt.NDArray[Any], ...]


def store(values: npt.NDArray[Any], fmt: TensorFormat) -> Parts:
    """The parts of a tensor, in the order of `Tensor.parts`."""
    match fmt:
        case TensorFormat.F32:
            return (np.ascontiguousarray(values, np.float32),)
        case TensorFormat.F16:
            return (np.ascontiguousarray(values, np.float16),)
        case TensorFormat.I8R:
            scale = np.abs(values).max(axis=1) / 127
            codes = np.rint(values / np.where(scale == 0, 1, scale)[:, None])
            return codes.astype(np.int8), scale.astype(np.float32)
        case TensorFormat.I8B32 | TensorFormat.I4B32:
            return store_blocks(values, fmt)
        case TensorFormat.S8B32:
            return store_symmetric(values)


def store_blocks(values: npt.NDArray[Any], fmt: TensorFormat) -> Parts:
    levels = 127 if fmt is TensorFormat.I8B32 else 15
    rows, columns = values.shape
    padded = np.pad(values.astype(np.float64), ((0, 0), (0, -columns % 32)))
    blocks = padded.reshape(rows, -1, 32)
    low = blocks.min(axis=2).astype(np.float16)
    scale = ((blocks.max(axis=2) - low) / levels).astype(np.float16)
    step = np.where(scale == 0, 1, scale).astype(np.float64)[:, :, None]
    codes = np.clip(np.rint((blocks - low[:, :, None]) / step), 0, levels).astype(np.uint8)
    # Code values past the logical columns must not matter: make them loud.
    codes.reshape(rows, -1)[:, columns:] = levels
    return pack_codes(codes, fmt), scale, low


def store_symmetric(values: npt.NDArray[Any]) -> Parts:
    rows, columns = values.shape
    padded = np.pad(values.astype(np.float64), ((0, 0), (0, -columns % 32)))
    blocks = padded.reshape(rows, -1, 32)
    scale = (np.abs(blocks).max(axis=2) / 127).astype(np.float16)
    step = np.where(scale == 0, 1, scale).astype(np.float64)[:, :, None]
    codes = np.clip(np.rint(blocks / step), -128, 127).astype(np.int8).reshape(rows, -1)
    codes[:, columns:] = -128  # as above: loud
    return codes, scale


def pack_codes(codes: npt.NDArray[np.uint8], fmt: TensorFormat) -> npt.NDArray[np.uint8]:
    """[N, blocks, 32] codes to the bytes of the data part."""
    if fmt is TensorFormat.I4B32:
        codes = codes[:, :, :16] | codes[:, :, 16:] << 4
    return np.ascontiguousarray(codes.reshape(len(codes), -1))


def codes_of(parts: Parts, fmt: TensorFormat) -> npt.NDArray[np.int64]:
    """[N, blocks, 32] codes of a block format."""
    data, scale = parts[:2]
    raw = data.reshape(*scale.shape, -1).astype(np.int64)
    if fmt is TensorFormat.I4B32:
        raw = np.concatenate([raw % 16, raw // 16], axis=2)
    return raw


def values_of(parts: Parts, fmt: TensorFormat, columns: int) -> npt.NDArray[np.float64]:
    """The values that stored parts stand for, [N, columns] in f64."""
    if fmt in (TensorFormat.F32, TensorFormat.F16):
        return parts[0].astype(np.float64)
    if fmt is TensorFormat.I8R:
        return np.einsum("nk,n->nk", parts[0].astype(np.float64), parts[1].astype(np.float64))
    blocks = codes_of(parts, fmt) * parts[1].astype(np.float64)[:, :, None]
    if len(parts) == 3:
        blocks = blocks + parts[2].astype(np.float64)[:, :, None]
    return blocks.reshape(len(blocks), -1)[:, :columns]


def block_linear(
    x: npt.NDArray[np.float32], parts: Parts, fmt: TensorFormat, bits: int = 8
) -> npt.NDArray[np.float64]:
    """``x @ weight.T`` block by block in integers, as docs/design.md 6.1 and 7.1 write it."""
    codes = codes_of(parts, fmt)
    scale = parts[1].astype(np.float64)
    low = parts[2].astype(np.float64) if len(parts) == 3 else np.zeros_like(scale)
    most = 127 if bits == 8 else 32639
    rows, blocks, _ = codes.shape
    padded = np.zeros((len(x), blocks * 32), np.float32)
    padded[:, : x.shape[1]] = x
    out = np.zeros((len(x), rows))
    for t, row in enumerate(padded.reshape(len(x), blocks, 32)):
        for b, block in enumerate(row):
            sa = np.abs(block).max() / np.float32(most)
            if sa == 0:
                continue
            a = np.clip(np.rint(block * (np.float32(1) / sa)), -most, most).astype(np.int64)
            out[t] += _dot(codes[:, b], a, bits) * (scale[:, b] * np.float64(sa))
            out[t] += low[:, b] * (np.float64(sa) * a.sum())
    return out


def _dot(q: npt.NDArray[np.int64], a: npt.NDArray[np.int64], bits: int) -> npt.NDArray[np.int64]:
    """[N, 32] codes times 32 codes; those of 16 bits in two halves of a signed byte each."""
    if bits == 8:
        return q @ a
    low = (a + 128) % 256 - 128
    high = (a - low) // 256
    for half in (low, high):
        assert ((half >= -128) & (half <= 127)).all()
    return 256 * (q @ high) + q @ low
