"""Stored weights to floats, and activations to the values that int8 codes stand for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.errors import ArtifactCorrupt
from runtime_py.executors.weights import RowRange
from runtime_py.program import BLOCK, Tensor, TensorFormat

Array = Any
"""An array of the namespace in use (numpy or torch)."""

BLOCK_FORMATS = (TensorFormat.I8B32, TensorFormat.I4B32, TensorFormat.S8B32)
"""Weights whose linear ops quantize their input."""

LARGEST_CODE = {8: 127, 16: 127 * 257}
"""Of activations, by bits: 127 * 257 is the most that two signed bytes hold both ways."""


def dequantize(
    tensor: Tensor, ranges: Iterable[RowRange], dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """The values of a stored tensor.

    Args:
        ranges: all rows of the tensor, in order, as `WeightSource.iter_rows` gives them.
        dtype: f32, or f64 to hold ``q * scale + min`` without rounding.

    Returns:
        Array of the tensor's logical shape.

    Raises:
        ArtifactCorrupt: rows are missing or out of order.
    """
    out = np.empty((tensor.shape[0], int(np.prod(tensor.shape[1:], dtype=np.int64))), dtype)
    at = 0
    for part in ranges:
        if part.row0 != at or at + part.rows > len(out):
            raise ArtifactCorrupt(
                f"tensor {tensor.name!r}: rows {part.row0} to {part.row0 + part.rows - 1} "
                f"after row {at - 1} of {len(out)}"
            )
        out[at : at + part.rows] = _rows(tensor.format, part, out.shape[1], out.dtype)
        at += part.rows
    if at != len(out):
        raise ArtifactCorrupt(f"tensor {tensor.name!r} has {at} rows, expected {len(out)}")
    return out.reshape(tensor.shape)


def _rows(
    fmt: TensorFormat, part: RowRange, columns: int, dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    if fmt in (TensorFormat.F32, TensorFormat.F16):
        stored = np.float32 if fmt is TensorFormat.F32 else np.float16
        plain: npt.NDArray[Any] = np.frombuffer(part.data, stored).astype(dtype)
        return plain.reshape(part.rows, columns)
    if part.scale is None:
        raise ArtifactCorrupt(f"a {fmt.name} tensor came without its scale")
    if fmt is TensorFormat.I8R:
        codes = np.frombuffer(part.data, np.int8).reshape(part.rows, columns)
        scales = np.frombuffer(part.scale, np.float32).reshape(part.rows, 1)
        product: npt.NDArray[Any] = codes.astype(dtype) * scales.astype(dtype)
        return product
    code = np.dtype(np.int8 if fmt is TensorFormat.S8B32 else np.uint8)
    raw: npt.NDArray[Any] = np.frombuffer(part.data, code).reshape(
        part.rows, -(-columns // BLOCK), -1
    )
    if fmt is TensorFormat.I4B32:
        raw = np.concatenate([raw & 15, raw >> 4], axis=-1)
    values: npt.NDArray[Any] = raw.astype(dtype) * _per_block(part.scale, part.rows, dtype)
    if fmt is not TensorFormat.S8B32:
        if part.min is None:
            raise ArtifactCorrupt(f"a {fmt.name} tensor came without its min")
        values = values + _per_block(part.min, part.rows, dtype)
    return values.reshape(part.rows, -1)[:, :columns]


def _per_block(data: memoryview, rows: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.frombuffer(data, np.float16).reshape(rows, -1, 1).astype(dtype)


def quantize_activations(xp: Any, x: Array, bits: int = 8) -> Array:
    """What is left of ``x`` after integer quantization per row and block of 32 columns.

    The codes are those of the kernels (docs/design.md, 6.1 and 7.1): ``sa = max|x| / most``
    and ``a = round_half_even(x * (1 / sa))`` in f32, with most = 127 or 32639.

    Args:
        x: [T, K].
        bits: 8 or 16.

    Returns:
        ``a * sa``, [T, K] in the dtype of ``x``.
    """
    tokens, columns = x.shape
    padding = -columns % BLOCK
    f32 = xp.asarray(x, dtype=xp.float32)
    if padding:
        f32 = xp.concat([f32, xp.zeros((tokens, padding), dtype=xp.float32)], axis=1)
    blocks = xp.reshape(f32, (tokens, (columns + padding) // BLOCK, BLOCK))
    most = LARGEST_CODE[bits]
    scale = xp.max(xp.abs(blocks), axis=2, keepdims=True) / most
    one = xp.ones_like(scale)
    codes = xp.round(blocks * (one / xp.where(scale == 0, one, scale)))
    codes = xp.where(blocks == 0, xp.zeros_like(codes), xp.clip(codes, -most, most))
    values = xp.asarray(codes, dtype=x.dtype) * xp.asarray(scale, dtype=x.dtype)
    return xp.reshape(values, (tokens, columns + padding))[:, :columns]
