"""How a tensor of the graph lies over packed tokens.

An *axis* is a tuple of atoms: ``"B"`` (batch), ``"S"`` (position), ``"K"`` (key position,
in attention scores), or an integer: a feature dimension of that size. ``[B, H, S, D]`` is
``(("B",), (12,), ("S",), (32,))``; a size-1 axis is ``()``.

Reshape, transpose, slice and the like only rearrange features. They are applied to
``index``, an integer array with one dimension per feature atom, in axis order, that says
which feature of the original tensor sits where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from toolchain.lowering.errors import NotLowered
from toolchain.lowering.probe import Dim

Atom = str | int
Axis = tuple[Atom, ...]
Axes = tuple[Axis, ...]
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """Axes and the order of features under them."""

    axes: Axes
    index: Index

    @classmethod
    def of(cls, axes: Axes) -> Layout:
        """The identity order over ``axes``."""
        sizes = features(axes)
        return cls(axes, np.arange(int(np.prod(sizes, dtype=np.int64))).reshape(sizes))


def features(axes: Axes) -> tuple[int, ...]:
    """Sizes of all feature atoms, in order."""
    return tuple(a for axis in axes for a in axis if isinstance(a, int))


def size_of(axis: Axis) -> int:
    """Number of features on an axis of nothing but features."""
    if any(isinstance(a, str) for a in axis):
        raise NotLowered(f"axis {axis} mixes tokens and features, expected features only")
    return int(np.prod([a for a in axis if isinstance(a, int)], dtype=np.int64))


def is_feature(axis: Axis) -> bool:
    return all(isinstance(a, int) for a in axis)


def positive(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def reshape(layout: Layout, dims: Sequence[Dim]) -> Layout:
    """Regroup atoms, splitting feature atoms where needed, into axes of size ``dims``."""
    atoms = [a for axis in layout.axes for a in axis]
    axes: list[Axis] = []
    for dim in dims:
        size, batch, length = dim
        axis: list[Atom] = []
        while (size, batch, length) != (1, 0, 0):
            atom = atoms.pop(0) if atoms else None
            if atom == "B" and batch:
                batch -= 1
            elif atom in ("S", "K") and length:
                length -= 1
            elif isinstance(atom, int) and size % atom == 0:
                size //= atom
            elif isinstance(atom, int) and size > 1 and atom % size == 0:
                atoms.insert(0, atom // size)
                atom, size = size, 1
            else:
                raise NotLowered(f"reshape of axes {layout.axes} to {tuple(dims)} mixes tokens")
            if axis and isinstance(axis[-1], int) and isinstance(atom, int):
                atom *= axis.pop()  # neighbours are one feature atom: equal axes look equal
            axis.append(atom)
        axes.append(tuple(axis))
    if atoms:
        raise NotLowered(f"reshape of axes {layout.axes} to {tuple(dims)} drops {atoms}")
    made = tuple(axes)
    return Layout(made, layout.index.reshape(features(made)))


def transpose(layout: Layout, perm: Sequence[int]) -> Layout:
    """Permute axes."""
    at, where = 0, []
    for axis in layout.axes:
        n = len(features((axis,)))
        where.append(list(range(at, at + n)))
        at += n
    order = [d for p in perm for d in where[p]]
    return Layout(tuple(layout.axes[p] for p in perm), layout.index.transpose(order))


def merge(layout: Layout, axis: int) -> tuple[Layout, int]:
    """Make feature axis ``axis`` one atom; also says which index dimension it is."""
    size = size_of(layout.axes[axis])
    axes = (*layout.axes[:axis], (size,), *layout.axes[axis + 1 :])
    at = len(features(layout.axes[:axis]))
    return Layout(axes, layout.index.reshape(features(axes))), at


def take(layout: Layout, axis: int, which: Index, *, drop: bool = False) -> Layout:
    """Features ``which`` of feature axis ``axis``; ``drop`` removes the axis (one feature)."""
    merged, at = merge(layout, axis)
    index = np.take(merged.index, which, axis=at)
    axes = list(merged.axes)
    if drop:
        del axes[axis]
        return Layout(tuple(axes), index.reshape(features(tuple(axes))))
    axes[axis] = (len(which),) if len(which) != 1 else ()
    return Layout(tuple(axes), index.reshape(features(tuple(axes))))


def broadcast(layout: Layout, dims: Sequence[Dim]) -> Layout:
    """Repeat size-1 axes to the feature sizes in ``dims`` (ONNX Expand)."""
    axes: Axes = ((),) * (len(dims) - len(layout.axes)) + layout.axes
    index = layout.index
    made: list[Axis] = []
    for axis, dim in zip(axes, dims, strict=True):
        if axis == () and dim != (1, 0, 0):
            if dim.batch or dim.length:
                raise NotLowered("expands a tensor over tokens")
            at = len(features(tuple(made)))
            index = np.repeat(np.expand_dims(index, at), dim.size, axis=at)
            axis = (dim.size,)
        made.append(axis)
    return Layout(tuple(made), index)


def spread(array: NDArray[np.float64], axes: Axes) -> NDArray[np.float64]:
    """A constant that broadcasts over ``axes``, as one number per feature (raveled).

    Raises:
        NotLowered: it differs along batch or positions.
    """
    sizes = features(axes)
    array = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    shape: list[int] = []
    for axis, n in zip(axes, array.shape, strict=True):
        own = features((axis,))
        if n == 1:
            shape.extend([1] * len(own))
        elif is_feature(axis) and n == size_of(axis):
            shape.extend(own)
        else:
            raise NotLowered(f"a constant of shape {array.shape} does not broadcast over {axes}")
    return np.broadcast_to(array.reshape(shape), sizes).ravel()
