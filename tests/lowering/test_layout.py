"""Views over packed tokens agree with numpy on the unpacked tensor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolchain.lowering import layout as lay
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.layout import Axes, Layout
from toolchain.lowering.probe import Dim

B, S = 3, 5
Array = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def unpack(layout: Layout) -> Array:
    """The tensor that a layout describes, entry = (b, s, feature) as one number."""
    atoms = [a for axis in layout.axes for a in axis]
    sizes = [{"B": B, "S": S}.get(a, a) for a in atoms]  # type: ignore[call-overload]
    features = [i for i, a in enumerate(atoms) if isinstance(a, int)]
    grid = np.indices(sizes) if sizes else np.zeros((0,))
    index = layout.index[tuple(grid[i] for i in features)] if features else 0
    b = grid[atoms.index("B")]
    s = grid[atoms.index("S")]
    shape = [
        int(np.prod([{"B": B, "S": S}.get(a, a) for a in axis]))  # type: ignore[call-overload]
        for axis in layout.axes
    ]
    return np.asarray((b * S + s) * 1000 + index).reshape(shape)


AXES: Axes = (("B",), ("S",), (12,), (2, 5))


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_transposes_compose(first: list[int], second: list[int]) -> None:
    start = Layout.of(AXES)
    got = lay.transpose(lay.transpose(start, first), second)
    np.testing.assert_array_equal(unpack(got), unpack(start).transpose(first).transpose(second))


@given(st.sampled_from([(3, 4), (2, 6), (12,), (6, 2), (4, 3)]), st.permutations(range(4)))
def test_reshape_splits_and_merges_features(split: tuple[int, ...], perm: list[int]) -> None:
    start = lay.transpose(Layout.of(AXES), perm)
    dims: list[Dim] = []
    for axis in start.axes:
        if axis == ("B",):
            dims.append(Dim(1, 1))
        elif axis == ("S",):
            dims.append(Dim(1, 0, 1))
        else:
            dims.extend(Dim(n) for n in (split if lay.size_of(axis) == 12 else (10,)))
    got = lay.reshape(start, dims)
    shape = [d.size * B**d.batch * S**d.length for d in dims]
    np.testing.assert_array_equal(unpack(got), unpack(start).reshape(shape))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_take_is_numpy_take(which: list[int]) -> None:
    start = Layout.of(AXES)
    got = lay.take(start, 3, np.array(which))
    np.testing.assert_array_equal(unpack(got), unpack(start).take(which, axis=3))


def test_tokens_cannot_mix_with_features() -> None:
    with pytest.raises(NotLowered, match="mixes tokens"):
        lay.reshape(Layout.of((("B",), (12,), ("S",))), [Dim(1, 1), Dim(4, 0, 1), Dim(3)])
    with pytest.raises(NotLowered, match="mixes tokens and features"):
        lay.size_of(("S",))


def test_constant_that_varies_by_position_is_no_feature_row() -> None:
    with pytest.raises(NotLowered, match="does not broadcast"):
        lay.spread(np.ones((1, 5, 12)), (("B",), ("S",), (12,)))
    row = lay.spread(np.arange(12.0).reshape(3, 1, 4), ((3,), ("S",), (4,)))
    np.testing.assert_array_equal(row, np.arange(12.0))
