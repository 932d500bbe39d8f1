"""Encodes float32 weights into the stored formats of `TensorFormat`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime_py.executors.reference.dequantize import dequantize
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import BLOCK, Program, Tensor, TensorFormat

Floats = npt.NDArray[np.float32]
Parts = dict[str, npt.NDArray[np.generic]]
"""Entry name -> array, as it goes into the shards."""

MAX_F16 = 65504.0
_RANGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class BlockCodes:
    """A weight [N, K] in blocks of 32 columns: ``w = codes * scale + low``.

    Attributes:
        codes: u8 [N, B, 32]; columns past K are padding.
        scale, low: f16 [N, B].
    """

    codes: npt.NDArray[np.uint8]
    scale: npt.NDArray[np.float16]
    low: npt.NDArray[np.float16]

    def decode(self, columns: int) -> Floats:
        """The weight that a backend sees, f32 [N, K]."""
        values = self.codes.astype(np.float32) * self.scale.astype(np.float32)[..., None]
        values += self.low.astype(np.float32)[..., None]
        return np.ascontiguousarray(values.reshape(len(values), -1)[:, :columns])

    def parts(self, tensor: Tensor) -> Parts:
        """The stored parts of ``tensor`` (I8B32 or I4B32)."""
        codes = self.codes
        if tensor.format is TensorFormat.I4B32:
            half = BLOCK // 2
            codes = codes[..., :half] | np.left_shift(codes[..., half:], 4, dtype=np.uint8)
        stored = (codes.reshape(len(codes), -1), self.scale, self.low)
        return dict(zip(tensor.parts, stored, strict=True))


def encode(tensor: Tensor, weight: Floats) -> Parts:
    """The parts of a tensor whose format needs no calibration (F32, F16, I8R, S8B32)."""
    match tensor.format:
        case TensorFormat.F32:
            return {tensor.name: weight.astype("<f4")}
        case TensorFormat.F16:
            return {tensor.name: weight.astype("<f2")}
        case TensorFormat.I8R:
            codes, scale = round_rows(weight)
            return dict(zip(tensor.parts, (codes, scale), strict=True))
        case TensorFormat.S8B32:
            return dict(zip(tensor.parts, round_blocks(weight), strict=True))
        case _:
            raise ValueError(f"{tensor.format.name} needs block codes")


def decode(tensor: Tensor, stored: Mapping[str, npt.NDArray[np.generic]]) -> Floats:
    """The values that a backend sees in the stored parts of ``tensor``, f32."""
    held = {name: np.ascontiguousarray(stored[name]) for name in tensor.parts}
    source = MemoryWeights(
        Program((), (tensor,), (), 0, 1, 0), {name: part.data for name, part in held.items()}
    )
    return dequantize(tensor, source.iter_rows(0, _RANGE_BYTES))


def round_blocks(weight: Floats) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float16]]:
    """S8B32 codes in -127..127, i8 [N, Kp], and scales, f16 [N, Kp / 32]."""
    rows = len(weight)
    blocks = np.pad(weight, ((0, 0), (0, -weight.shape[1] % BLOCK))).reshape(rows, -1, BLOCK)
    scale = (np.abs(blocks).max(axis=2) / np.float32(127)).astype(np.float16)
    step = scale.astype(np.float32)[..., None]
    codes = np.rint(np.divide(blocks, step, out=np.zeros_like(blocks), where=step > 0))
    return codes.clip(-127, 127).astype(np.int8).reshape(rows, -1), scale


def round_rows(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
    """Per-row codes in -127..127 and f32 scales [N] that minimise the squared error.

    A scale a little below max/127 clips the largest element but rounds all others more
    finely; the best of a few such scales is refined by one least-squares step.
    """
    peak = np.abs(weight).max(axis=1, keepdims=True)
    best_error = np.full(len(weight), np.inf, np.float32)
    best_scale = np.ones((len(weight), 1), np.float32)
    for shrink in (1.0, 0.98, 0.96, 0.94, 0.92):
        scale = _safe(peak * np.float32(shrink / 127))
        codes = np.clip(np.rint(weight / scale), -127, 127)
        energy = np.einsum("nk,nk->n", codes, codes)[:, None]
        fitted = np.einsum("nk,nk->n", codes, weight)[:, None] / np.maximum(energy, 1)
        scale = _safe(np.where(energy > 0, fitted, scale).astype(np.float32))
        codes = np.clip(np.rint(weight / scale), -127, 127)
        error = np.square(codes * scale - weight).sum(axis=1)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best_scale[better] = scale[better]
    codes = np.clip(np.rint(weight / best_scale), -127, 127).astype(np.int8)
    return codes, best_scale[:, 0]


def _safe(scale: Floats) -> Floats:
    """``scale`` with zeros (rows of zeros) replaced by one."""
    return np.where(scale > 0, scale, np.float32(1)).astype(np.float32)
