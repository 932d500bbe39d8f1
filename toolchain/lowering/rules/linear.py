"""Matrix products with constant weights, and of queries with keys, and of probabilities
with values."""

from __future__ import annotations

import numpy as np

from runtime_py.program import OpKind
from toolchain.lowering import layout as lay
from toolchain.lowering.context import Context, describe, token_axes
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.ir import Array, Weight
from toolchain.lowering.rules.attention import attend, scores
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.values import Data, Scores, Struct, View


@rule("MatMul")
def matmul(ctx: Context, node: GraphNode) -> Data:
    a, b = ctx.operand(0), ctx.operand(1)
    if isinstance(b, Struct) and not isinstance(a, Struct):
        return linear(ctx, ctx.as_view(a), b.name)
    if isinstance(a, Scores):
        return attend(ctx, a, ctx.as_view(b))
    if isinstance(a, Struct):
        raise NotLowered(f"multiplies a structural tensor by {describe(b)}")
    return scores(ctx, ctx.as_view(a), ctx.as_view(b))


@rule("FusedMatMul", domain="com.microsoft")
def fused_matmul(ctx: Context, node: GraphNode) -> Data:
    if node.attrs.get("transBatchA") or node.attrs.get("transBatchB"):
        raise NotLowered("transposes batches")
    a, b = ctx.operand(0), ctx.operand(1)
    alpha = float(node.attrs.get("alpha", 1.0))
    if isinstance(b, Struct):
        if node.attrs.get("transA"):
            raise NotLowered("transposes its activations")
        view = linear(ctx, ctx.as_view(a), b.name, transposed=bool(node.attrs.get("transB")))
        return view.scaled(alpha)

    def flipped(view: View, flag: str) -> View:
        if not node.attrs.get(flag):
            return view
        rank = len(view.axes)
        perm = [*range(rank - 2), rank - 1, rank - 2]
        return view.arranged(lay.transpose(lay.Layout.of(view.axes), perm))

    if isinstance(a, Scores):
        return attend(ctx, a, flipped(ctx.as_view(b), "transB")).scaled(alpha)
    left, right = flipped(ctx.as_view(a), "transA"), flipped(ctx.as_view(b), "transB")
    return scores(ctx, left.scaled(alpha), right)


@rule("Gemm")
def gemm(ctx: Context, node: GraphNode) -> Data:
    if node.attrs.get("transA"):
        raise NotLowered("transposes its activations")
    view = linear(ctx, ctx.view(0), node.inputs[1], transposed=bool(node.attrs.get("transB")))
    view = view.scaled(float(node.attrs.get("alpha", 1.0)))
    if node.input(2):
        row = ctx.constant(ctx.operand(2))
        if row is None:
            raise NotLowered("adds a bias that is not constant")
        row = np.broadcast_to(row.ravel() * float(node.attrs.get("beta", 1.0)), (len(view.cols),))
        view = ctx.add_constant(view, row, node.input(2))
    return view


def linear(ctx: Context, x: View, weight: str, *, transposed: bool = False) -> View:
    """Emit ``x @ weight``; ``weight`` names a constant [K, N] ([N, K] when ``transposed``)."""
    array = ctx.prober.find_constant(weight)
    if array is None or array.ndim != 2:
        raise NotLowered("multiplies by something that is no constant matrix")
    hint = weight if ctx.graph.is_initializer(weight) else _transposed_name(ctx, weight)
    return linear_by(ctx, x, array if transposed else array.T, hint)


def linear_by(ctx: Context, x: View, weight: Array, hint: str) -> View:
    """Emit ``x @ weight.T`` for ``weight`` [N, K]."""
    if not token_axes(x.axes):
        raise NotLowered(f"multiplies a tensor with axes {x.axes}, expected tokens by features")
    if weight.shape[1] != len(x.cols):
        raise NotLowered(f"weight {weight.shape} for {len(x.cols)} features")
    if ctx.keep_rows and (x.coef is not None or np.any(np.diff(x.cols) != 1)):
        x = ctx.fresh(ctx.dense(x), x.axes)
    cols, width = x.cols, ctx.ir.width(x.value)
    if x.coef is not None:
        weight = weight * x.coef
    start = int(cols.min())
    if not np.array_equal(cols, np.arange(start, start + len(cols))):
        # columns in another order (or repeated): move the weights instead
        moved = np.zeros((width, weight.shape[0]), np.float64)
        np.add.at(moved, cols, weight.T)
        weight, start = moved.T, 0
    out = ctx.ir.emit(
        OpKind.LINEAR,
        weight.shape[0],
        {"x": x.value},
        {"weight": Weight(weight, _readable(ctx, hint))},
        {"activation": 0, "x_offset": start},
    )
    last = (weight.shape[0],) if weight.shape[0] > 1 else ()
    return ctx.fresh(out, (*x.axes[:-1], last))


def _transposed_name(ctx: Context, name: str) -> str:
    """Initializer behind a constant that is its transpose or cast."""
    for _ in range(4):
        made = ctx.graph.producer.get(name)
        if made is None or made.op not in ("Transpose", "Cast", "Identity"):
            break
        name = made.inputs[0]
    return name


def _readable(ctx: Context, hint: str) -> str:
    """A dotted name for a weight: its own, or the module path that the node carries."""
    return hint if hint.endswith(".weight") else ctx.module_weight("MatMul", "Gemm") or hint
