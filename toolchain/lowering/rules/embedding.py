"""Token, position and token type embeddings."""

from __future__ import annotations

import numpy as np

from runtime_py.program import OpKind
from toolchain.lowering.context import Context, Floats
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.ir import Weight
from toolchain.lowering.layout import Axes, features
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.rules.shapes import gather_features
from toolchain.lowering.values import Data, View

_ENOUGH_TO_TELL = 8
"""Positions that show whether a tensor depends on them, where no limit is known."""


@rule("Gather")
def gather(ctx: Context, node: GraphNode) -> Data:
    if node.inputs[0] in ctx.values:
        return gather_features(ctx, node)
    if int(node.attrs.get("axis", 0)) != 0 or not is_token_ids(ctx, node.inputs[1]):
        raise NotLowered("looks token ids up in something that is no embedding table")
    return embed(ctx, node.inputs[0], axes_of_output(ctx, node.outputs[0]))


def is_token_ids(ctx: Context, name: str) -> bool:
    """Whether tensor ``name`` holds the token ids themselves."""
    if name in ctx.values or name in ctx.graph.constants:
        return False
    return all(
        np.array_equal(np.asarray(value).ravel(), probe.feeds["input_ids"].ravel())
        for value, probe in zip(ctx.prober.small(name), ctx.prober.probes, strict=True)
    )


def axes_of_output(ctx: Context, name: str) -> Axes:
    """Axes of a tensor [batch, sequence, features] or [batch * sequence, features]."""
    axes = []
    for size, batch, length in ctx.prober.shape(name):
        axis: tuple[str | int, ...] = ("B",) * batch + ("S",) * length
        axes.append(axis + ((size,) if size > 1 else ()))
    if [a for axis in axes for a in axis if isinstance(a, str)] != ["B", "S"]:
        raise NotLowered(f"has axes {axes}, expected batch, sequence, features")
    return tuple(axes)


def embed(ctx: Context, table: str, axes: Axes) -> View:
    """Emit the lookup of token ids in constant ``table`` [vocabulary, width]."""
    array = ctx.prober.constant(table)
    if array.ndim != 2 or features(axes) not in ((array.shape[1],), ()):
        raise NotLowered(f"embedding table has shape {array.shape}, expected [vocabulary, width]")
    out = ctx.ir.emit(
        OpKind.EMBED,
        array.shape[1],
        tensors={"table": Weight(array, table)},
        floats={"scale": 1.0},
    )
    return ctx.fresh(out, axes)


def add_structural(ctx: Context, view: View, name: str) -> View:
    """``view`` plus a structural tensor: positions, token types, or a constant row."""
    rows = ctx.per_position(name, view.axes, ctx.max_positions or _ENOUGH_TO_TELL)
    hint = ctx.graph.table_behind(name)
    if np.array_equal(rows, np.broadcast_to(rows[0], rows.shape)):
        return add_row(ctx, view, rows[0], hint)
    if not ctx.max_positions:
        raise NotLowered(
            "adds a position table, but the configuration states no max_position_embeddings"
        )
    return add_positions(ctx, view, rows, hint)


def add_row(ctx: Context, view: View, row: Floats, hint: str) -> View:
    """``view`` plus one number per feature, folded into the embedding where it is one."""
    base, scale = view.split_scale()
    embedding = _embedding(ctx, base)
    if embedding is None:
        return ctx.add_constant(view, row, hint)
    tensors = dict(embedding.tensors)
    old = tensors.get("constant")
    tensors["constant"] = Weight(row + (0 if old is None else old.array), hint)
    return _embedded(ctx, base, tensors, scale)


def add_positions(ctx: Context, view: View, rows: Floats, hint: str) -> View:
    """``view`` (of an embedding) plus row p of ``rows`` at position p."""
    base, scale = view.split_scale()
    embedding = _embedding(ctx, base)
    if embedding is None:
        raise NotLowered("adds position vectors to something that is no embedding")
    tensors = dict(embedding.tensors)
    old = tensors.get("positions")
    tensors["positions"] = Weight(rows + (0 if old is None else old.array), hint)
    return _embedded(ctx, base, tensors, scale)


def _embedding(ctx: Context, view: View):  # type: ignore[no-untyped-def]
    made = ctx.ir.producer(view.value)
    whole = np.array_equal(view.cols, np.arange(ctx.ir.width(view.value)))
    return made if made.kind is OpKind.EMBED and whole and view.coef is None else None


def _embedded(ctx: Context, base: View, tensors: dict[str, Weight], scale: float) -> View:
    made = ctx.ir.producer(base.value)
    if scale != 1.0 and len(made.tensors) > 1:
        raise NotLowered("scales an embedding between its parts")
    out = ctx.ir.emit(
        OpKind.EMBED,
        ctx.ir.width(base.value),
        tensors=tensors,
        floats={"scale": made.floats["scale"] * scale},
    )
    return ctx.fresh(out, base.axes)
