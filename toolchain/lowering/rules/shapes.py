"""Operators that only rearrange: no op is emitted for any of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from toolchain.lowering import layout as lay
from toolchain.lowering.context import Context
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.layout import Layout
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.rules.rotary import join
from toolchain.lowering.values import Data, Mix, Pointwise, Scores, Struct, View


@rule("Identity", "Cast", "CastLike", "Dropout")
def identity(ctx: Context, node: GraphNode) -> Data:
    return ctx.operand(0)


def rearrange(ctx: Context, x: Data, change: Layout) -> Data:
    """``x`` with its features in the order and under the axes of ``change``."""
    if isinstance(x, View | Mix):
        return x.arranged(change)
    if isinstance(x, Pointwise):
        return replace(x, base=x.base.arranged(change))
    if isinstance(x, Scores):
        if not np.array_equal(change.index.ravel(), np.arange(change.index.size)):
            raise NotLowered("reorders or drops attention heads")
        return replace(x, axes=change.axes)
    raise NotLowered("reshapes an unfinished norm")


@rule("Reshape", "Unsqueeze", "Squeeze", "Flatten")
def reshape(ctx: Context, node: GraphNode) -> Data:
    x = movable(ctx, 0)
    change = lay.reshape(Layout.of(axes_of(x)), ctx.prober.shape(node.outputs[0]))
    return rearrange(ctx, x, change)


@rule("Transpose")
def transpose(ctx: Context, node: GraphNode) -> Data:
    x = movable(ctx, 0)
    axes = axes_of(x)
    perm = node.attrs.get("perm") or list(range(len(axes)))[::-1]
    return rearrange(ctx, x, lay.transpose(Layout.of(axes), list(perm)))


@rule("Expand")
def expand(ctx: Context, node: GraphNode) -> Data:
    x = movable(ctx, 0)
    dims = ctx.prober.shape(node.outputs[0])
    if dims == ctx.prober.shape(node.inputs[0]):
        return x
    return rearrange(ctx, x, lay.broadcast(Layout.of(axes_of(x)), dims))


@rule("Slice")
def slice_(ctx: Context, node: GraphNode) -> Data:
    x = movable(ctx, 0)
    axes = axes_of(x)
    parts = [ctx.constant(Struct(n)) if n else None for n in node.inputs[1:5]]
    parts += [None] * (4 - len(parts))
    starts, ends, which, steps = parts
    if starts is None or ends is None:
        if ctx.prober.shape(node.outputs[0]) == ctx.prober.shape(node.inputs[0]):
            return x  # cuts at the sequence's own length
        raise NotLowered("slices at bounds that depend on the input")
    count = starts.size
    along = range(count) if which is None else [int(a) for a in which.ravel()]
    change = Layout.of(axes)
    for i, axis in enumerate(along):
        axis = lay.positive(axis, len(axes))
        step = 1 if steps is None else int(steps.ravel()[i])
        bounds = slice(_clip(starts.ravel()[i]), _clip(ends.ravel()[i]), step)
        if lay.is_feature(axes[axis]):
            size = lay.size_of(axes[axis])
            change = lay.take(change, axis, np.arange(size)[bounds])
        elif (bounds.start, step) != (0, 1) or (
            ctx.prober.shape(node.outputs[0])[axis] != ctx.prober.shape(node.inputs[0])[axis]
        ):
            raise NotLowered(f"slices tokens {bounds.start}:{bounds.stop}:{step}, expected all")
    return rearrange(ctx, x, change)


def _clip(bound: float) -> int:
    # int64 limits stand for "to the end"; as floats they would overflow
    return int(max(min(bound, 2.0**31), -(2.0**31)))


@rule("Split")
def split(ctx: Context, node: GraphNode) -> list[Data]:
    x = movable(ctx, 0)
    axes = axes_of(x)
    axis = lay.positive(int(node.attrs.get("axis", 0)), len(axes))
    if not lay.is_feature(axes[axis]):
        raise NotLowered("splits tokens, expected a split of features")
    out: list[Data] = []
    at = 0
    for name in node.outputs:
        size = ctx.prober.shape(name)[axis].size
        which = np.arange(at, at + size)
        out.append(rearrange(ctx, x, lay.take(Layout.of(axes), axis, which)))
        at += size
    return out


@rule("Concat")
def concat(ctx: Context, node: GraphNode) -> Data:
    parts = [ctx.operand(i) for i in range(len(node.inputs))]
    parts = [p if isinstance(p, View | Mix) else ctx.as_view(p) for p in parts]
    axes = axes_of(parts[0])
    axis = lay.positive(int(node.attrs["axis"]), len(axes))
    return join(ctx, parts, axis)


def gather_features(ctx: Context, node: GraphNode) -> Data:
    """Gather with constant indices along a feature axis (one of a stack of q, k, v)."""
    x = movable(ctx, 0)
    axes = axes_of(x)
    axis = lay.positive(int(node.attrs.get("axis", 0)), len(axes))
    index = ctx.constant(ctx.operand(1))
    if index is None or not lay.is_feature(axes[axis]):
        raise NotLowered("picks tokens by index, expected constant indices of features")
    which = index.astype(np.int64).ravel()
    which = np.where(which < 0, which + lay.size_of(axes[axis]), which)
    if index.ndim > 1:
        raise NotLowered(f"gathers by indices of shape {index.shape}, expected one dimension")
    return rearrange(ctx, x, lay.take(Layout.of(axes), axis, which, drop=index.ndim == 0))


def axes_of(x: Data) -> lay.Axes:
    """Axes of an abstract value."""
    if isinstance(x, Pointwise):
        return x.base.axes
    if isinstance(x, View | Mix | Scores):
        return x.axes
    raise NotLowered("reshapes an unfinished norm")


def movable(ctx: Context, index: int) -> Data:
    """Input ``index`` as something that can be rearranged."""
    x = ctx.operand(index)
    return x if isinstance(x, View | Mix | Pointwise | Scores) else ctx.as_view(x)
