"""Layer norm and RMS norm, as one operator or spelled out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from runtime_py.program import NormMode, OpKind
from toolchain.lowering import layout as lay
from toolchain.lowering.context import Context, Floats
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.ir import Weight
from toolchain.lowering.layout import is_feature
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.values import Data, RowStat, Struct, View


def emit_norm(
    ctx: Context,
    x: View,
    mode: NormMode,
    eps: float,
    gamma: str = "",
    beta: str = "",
) -> View:
    """Emit the norm of ``x`` over its last axis, then ``* gamma + beta`` (constants)."""
    if not is_feature(x.axes[-1]):
        raise NotLowered(f"norm over tokens (axes {x.axes}), expected features")
    group = lay.size_of(x.axes[-1])
    value = ctx.dense(x)
    width = ctx.ir.width(value)
    tensors = {}
    for key, name in (("gamma", gamma), ("beta", beta)):
        if name:
            row = ctx.constant(Struct(name))
            if row is None or row.size not in (1, group):
                raise NotLowered(f"{key} is no constant of {group} numbers")
            tensors[key] = Weight(np.broadcast_to(row.ravel(), (group,)), name)
    out = ctx.ir.emit(
        OpKind.NORM,
        width,
        {"x": value},
        tensors,
        {"mode": mode, "group": 0 if group == width else group},
        {"eps": eps},
    )
    return ctx.fresh(out, x.axes)


def with_gamma(ctx: Context, x: View, row: Floats, hint: str) -> View | None:
    """``x * row`` as the gamma of the norm that makes ``x``, or None where it has no room.

    The norm gets it at once, not in a later rewrite: its result usually goes to a residual
    and a linear layer, and both want the scaled row.
    """
    made = ctx.ir.producer(x.value)
    if made.kind is not OpKind.NORM or made.tensors or x.coef is not None:
        return None
    width = ctx.ir.width(x.value)
    group = made.uints["group"] or width
    parts = row.reshape(-1, group) if np.array_equal(x.cols, np.arange(width)) else row[None, :0]
    if not parts.size or not np.array_equal(parts, np.broadcast_to(parts[:1], parts.shape)):
        return None
    tensors = {"gamma": Weight(parts[0], hint)}
    out = ctx.ir.emit(OpKind.NORM, width, made.ins, tensors, made.uints, made.floats)
    return ctx.fresh(out, x.axes)


def _last(node: GraphNode, axes: lay.Axes) -> None:
    if lay.positive(int(node.attrs.get("axis", -1)), len(axes)) != len(axes) - 1:
        raise NotLowered(f"norm over axis {node.attrs.get('axis')}, expected the last")


@rule("LayerNormalization")
def layer_normalization(ctx: Context, node: GraphNode) -> Data:
    x = ctx.view(0)
    _last(node, x.axes)
    eps = float(node.attrs.get("epsilon", 1e-5))
    return emit_norm(ctx, x, NormMode.LAYER, eps, node.input(1), node.input(2))


@rule("RMSNormalization", "SimplifiedLayerNormalization")
def rms_normalization(ctx: Context, node: GraphNode) -> Data:
    x = ctx.view(0)
    _last(node, x.axes)
    return emit_norm(ctx, x, NormMode.RMS, float(node.attrs.get("epsilon", 1e-5)), node.input(1))


@rule("ReduceMean")
def reduce_mean(ctx: Context, node: GraphNode) -> Data:
    x = ctx.operand(0)
    base = x.base if isinstance(x, RowStat) else ctx.as_view(x)
    axes = node.attrs.get("axes")
    if axes is None and node.input(1):
        found = ctx.constant(Struct(node.input(1)))
        axes = None if found is None else [int(a) for a in found.ravel()]
    rank = len(base.axes)
    if axes is None or [lay.positive(int(a), rank) for a in axes] != [rank - 1]:
        raise NotLowered(f"mean over axes {axes}, expected the last")
    if not is_feature(base.axes[-1]) or not node.attrs.get("keepdims", 1):
        raise NotLowered("mean over tokens, expected features")
    if isinstance(x, RowStat):
        if x.stage != "square":
            raise NotLowered(f"mean of the {x.stage} of a row, expected of its squares")
        return replace(x, stage="mean_square")
    return RowStat("mean", base)


def square(x: Data) -> RowStat | None:
    """The square of a row or a centered row, or None for anything else."""
    if isinstance(x, RowStat) and x.stage == "centered":
        return replace(x, stage="square")
    if isinstance(x, View):
        return RowStat("square", x)
    return None


def centered(x: Data, mean: Data) -> RowStat | None:
    """``x - mean`` when ``mean`` is the mean of ``x``, else None."""
    if isinstance(mean, RowStat) and mean.stage == "mean" and mean.base.same(x):
        return RowStat("centered", mean.base, is_centered=True)
    return None


def root(x: RowStat, power: int) -> RowStat:
    """Square root (``power`` 1) or its reciprocal (-1) of a mean square."""
    if x.stage != "mean_square":
        raise NotLowered(f"square root of the {x.stage} of a row, expected of a mean square")
    return replace(x, stage="root", power=power)


def normalised(ctx: Context, x: Data, divisor: RowStat, power: int) -> View | None:
    """``x`` times the reciprocal root of its own mean square: a norm; else None."""
    if divisor.stage != "root" or divisor.power != power:
        return None
    base = divisor.base
    if divisor.is_centered:
        if isinstance(x, RowStat) and x.stage == "centered" and x.base.same(base):
            return emit_norm(ctx, base, NormMode.LAYER, divisor.eps)
    elif base.same(x):
        return emit_norm(ctx, base, NormMode.RMS, divisor.eps)
    return None
