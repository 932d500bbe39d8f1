"""The array functions that the ops use, in numpy and in torch.

The ops call numpy 2's names, those of the Python array API standard. Torch has most of
them; `TorchNamespace` spells the others and puts every new array on its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime_py.errors import InvalidInput

Array = Any


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """The values of an array of any namespace, on the host."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


class TorchNamespace:
    """numpy's names over torch, for arrays on one device."""

    def __init__(self, device: str) -> None:
        """Use ``device`` ("cpu", "cuda", "cuda:1").

        Raises:
            InvalidInput: torch has no such device here, or is missing.
        """
        try:
            import torch
        except ImportError as error:
            raise InvalidInput(
                f"device is {device!r}, which needs torch, and that cannot be imported "
                f"({error}); install torch, or leave the device out"
            ) from None

        self._torch = torch
        try:
            self._device = torch.device(device)
            torch.empty(0, device=self._device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InvalidInput(
                f"device is {device!r}, expected one that torch has here ({reason})"
            ) from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._torch, name)

    def asarray(self, x: Any, *, dtype: Any = None, copy: bool | None = None) -> Array:
        return self._torch.asarray(x, dtype=dtype, device=self._device, copy=copy)

    def zeros(self, shape: Sequence[int], *, dtype: Any) -> Array:
        return self._torch.zeros(tuple(shape), dtype=dtype, device=self._device)

    def full(self, shape: Sequence[int], value: float, *, dtype: Any) -> Array:
        return self._torch.full(tuple(shape), value, dtype=dtype, device=self._device)

    def arange(self, *bounds: int, dtype: Any = None) -> Array:
        return self._torch.arange(*bounds, dtype=dtype, device=self._device)

    def take(self, x: Array, at: Array, *, axis: int) -> Array:
        return x.index_select(axis, at)

    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        return x.permute(tuple(axes))

    def repeat(self, x: Array, count: int, *, axis: int) -> Array:
        return x.repeat_interleave(count, dim=axis)

    def concat(self, arrays: Sequence[Array], *, axis: int) -> Array:
        return self._torch.cat(tuple(arrays), dim=axis)

    def stack(self, arrays: Sequence[Array], *, axis: int) -> Array:
        return self._torch.stack(tuple(arrays), dim=axis)

    def max(self, x: Array, *, axis: int, keepdims: bool = False) -> Array:
        return x.amax(dim=axis, keepdim=keepdims)

    def mean(self, x: Array, *, axis: int, keepdims: bool = False) -> Array:
        return x.mean(dim=axis, keepdim=keepdims)

    def sum(self, x: Array, *, axis: int | None = None, keepdims: bool = False) -> Array:
        return x.sum() if axis is None else x.sum(dim=axis, keepdim=keepdims)
