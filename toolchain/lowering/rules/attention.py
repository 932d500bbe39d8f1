"""Attention: scores, softmax, values; and the standard fused operator."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from runtime_py.program import FLAG_CAUSAL, OpKind
from toolchain.lowering import layout as lay
from toolchain.lowering.context import Context
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.ir import Weight
from toolchain.lowering.layout import Axes, Axis, features, is_feature
from toolchain.lowering.masks import classify
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.values import Data, Index, MaskTerm, NanCheck, Scores, View


def scores(ctx: Context, q: View, k: View) -> Scores:
    """``q @ k`` for q [batch..., S, D] and k [batch..., D, S], unscaled."""
    rank = max(len(q.axes), len(k.axes))
    if len(q.axes) != len(k.axes) or rank < 3:
        raise NotLowered(f"multiplies tensors with axes {q.axes} and {k.axes}")
    if q.axes[-2] != ("S",) or k.axes[-1] != ("S",) or q.axes[-1] != k.axes[-2]:
        raise NotLowered(f"multiplies axes {q.axes} by {k.axes}, expected queries by keys")
    swap = [*range(rank - 2), rank - 1, rank - 2]
    k = k.arranged(lay.transpose(lay.Layout.of(k.axes), swap))
    batch = tuple(_common(a, b) for a, b in zip(q.axes[:-2], k.axes[:-2], strict=True))
    q, k = _over_heads(q, batch), _over_heads(k, batch)
    heads = int(np.prod(features(batch), dtype=np.int64))
    return Scores(q, k, heads, (*batch, ("S",), ("K",)))


def _common(a: Axis, b: Axis) -> Axis:
    if a == b or b == ():
        return a
    if a == ():
        return b
    raise NotLowered(f"batch axes {a} and {b} do not match")


def _over_heads(view: View, batch: Axes) -> View:
    """``view`` with its batch axes repeated to ``batch`` (grouped queries)."""
    axes = (*batch, *view.axes[-2:])
    index = np.arange(len(view.cols)).reshape(features(view.axes))
    at = 0
    for own, wanted in zip(view.axes[:-2], batch, strict=True):
        sizes = features((wanted,))
        if own == () and sizes:
            for size in sizes:
                index = np.repeat(np.expand_dims(index, at), size, axis=at)
                at += 1
        else:
            at += len(sizes)
    return view.arranged(lay.Layout(axes, index))


@rule("Softmax")
def softmax(ctx: Context, node: GraphNode) -> Data:
    x = ctx.operand(0)
    if not isinstance(x, Scores) or x.pending_tanh or x.is_probability:
        raise NotLowered("softmax of something that is no attention scores")
    axis = lay.positive(int(node.attrs.get("axis", -1)), len(x.axes))
    if x.axes[axis] != ("K",):
        raise NotLowered(f"softmax over axis {axis} of {x.axes}, expected the keys")
    return replace(x, is_probability=True)


@rule("IsNaN")
def is_nan(ctx: Context, node: GraphNode) -> Data:
    x = ctx.operand(0)
    if not isinstance(x, Scores):
        raise NotLowered("expected attention probabilities")
    return NanCheck(x)


def attend(ctx: Context, p: Scores, v: View) -> View:
    """Emit softmax(scores) @ v for v [batch..., S, D]."""
    if not p.is_probability:
        raise NotLowered("multiplies scores by values before a softmax")
    if p.axes[-2:] != (("S",), ("K",)) or len(v.axes) != len(p.axes) or v.axes[-2] != ("S",):
        raise NotLowered(f"multiplies axes {p.axes} by {v.axes}, expected keys by values")
    batch = p.axes[:-2]
    for own, wanted in zip(v.axes[:-2], batch, strict=True):
        _common(own, wanted)
    v = _over_heads(v, batch)
    out = emit_attention(ctx, p, v)
    head_dim = len(v.cols) // p.heads
    tail: Axis = (head_dim,) if head_dim > 1 else ()
    view = ctx.fresh(out, (*batch, ("S",), tail))
    return view if v.coef is None else view.scaled(v.coef)


def emit_attention(ctx: Context, p: Scores, v: View) -> int:
    """Emit the op; the result is [heads * head_dim] wide, values unscaled."""
    head_dim = len(p.q.cols) // p.heads
    if len(v.cols) != p.heads * head_dim:
        raise NotLowered("values and keys differ in head size")
    q, q_scale = _uniform(ctx, p.q)
    k, k_scale = _uniform(ctx, p.k)
    q_cols = q.cols
    if not np.array_equal(q_cols, np.arange(q_cols[0], q_cols[0] + len(q_cols))):
        q = ctx.fresh(ctx.dense(q), q.axes)
    k, k_offset, k_heads = _grouped(ctx, k, p.heads, head_dim)
    v, v_offset, v_heads = _grouped(ctx, replace(v, coef=None), p.heads, head_dim)
    if k_heads != v_heads:
        raise NotLowered(f"{k_heads} key heads and {v_heads} value heads")
    mask = classify(ctx, p)
    return ctx.ir.emit(
        OpKind.ATTENTION,
        p.heads * head_dim,
        {"q": q.value, "k": k.value, "v": v.value},
        {} if mask.bias is None else {"bias": Weight(mask.bias, mask.hint)},
        {
            "heads": p.heads,
            "kv_heads": k_heads,
            "head_dim": head_dim,
            "q_offset": int(q.cols[0]),
            "k_offset": k_offset,
            "v_offset": v_offset,
            "window": mask.window,
        },
        {"scale": p.scale * q_scale * k_scale, "softcap": p.softcap},
        FLAG_CAUSAL if mask.causal else 0,
    )


def _uniform(ctx: Context, view: View) -> tuple[View, float]:
    """``view`` without factors that cannot move into the scale, and the factor that can."""
    base, scale = view.split_scale()
    if base.coef is None:
        return base, scale
    return ctx.fresh(ctx.dense(base), base.axes), 1.0


def _grouped(ctx: Context, view: View, heads: int, head_dim: int) -> tuple[View, int, int]:
    """(view, offset, kv_heads) of keys or values whose heads may repeat in groups."""
    for value in (view, None):
        if value is None:
            view = ctx.fresh(ctx.dense(view), view.axes)
        start = int(view.cols[0])
        for kv_heads in range(1, heads + 1):
            if heads % kv_heads == 0 and np.array_equal(
                view.cols, start + _pattern(heads, kv_heads, head_dim)
            ):
                return view, start, kv_heads
    raise NotLowered("keys or values lie in no order that heads can share")


def _pattern(heads: int, kv_heads: int, head_dim: int) -> Index:
    head = np.arange(heads) // (heads // kv_heads)
    return (head[:, None] * head_dim + np.arange(head_dim)).ravel()


@rule("Attention")
def attention(ctx: Context, node: GraphNode) -> Data:
    """ONNX Attention (opset 23), without cache."""
    if any(node.input(i) for i in (4, 5)) or any(node.outputs[1:]):
        raise NotLowered("keeps past keys, expected an encoder's attention")
    if node.attrs.get("qk_matmul_output_mode"):
        raise NotLowered("returns its scores")
    q, k, v = (ctx.view(i) for i in range(3))
    flat = len(q.axes) == 3
    if flat:
        q_heads, kv_heads = int(node.attrs["q_num_heads"]), int(node.attrs["kv_num_heads"])
        q = split_heads(q, q_heads)
        k, v = split_heads(k, kv_heads), split_heads(v, kv_heads)
    q_heads, kv_heads = (lay.size_of(x.axes[1]) for x in (q, k))
    k, v = (_repeat_heads(x, q_heads // kv_heads) for x in (k, v))
    k = k.arranged(lay.transpose(lay.Layout.of(k.axes), (0, 1, 3, 2)))
    p = scores(ctx, q, k)
    scale = float(node.attrs.get("scale", 0.0)) or 1.0 / math.sqrt(lay.size_of(q.axes[3]))
    p = replace(
        p,
        scale=scale,
        softcap=float(node.attrs.get("softcap", 0.0)),
        causal=bool(node.attrs.get("is_causal", 0)),
        is_probability=True,
    )
    if node.input(3):
        p = replace(p, terms=(operator_mask(ctx, node.input(3)),))
    view = attend(ctx, p, v)
    return join_heads(view) if flat else view


def operator_mask(ctx: Context, name: str) -> MaskTerm:
    """The mask input of an attention operator: boolean (true = attend) or added."""
    if name in ctx.values:
        raise NotLowered("mask depends on token vectors")
    if ctx.prober.small(name)[0].dtype == np.bool_:
        return MaskTerm("keep", name, fill=-math.inf)
    return MaskTerm("add", name)


def split_heads(view: View, heads: int) -> View:
    """[B, S, H * D] -> [B, H, S, D]."""
    dim = lay.size_of(view.axes[2]) // heads
    axes = (
        view.axes[0],
        view.axes[1],
        (heads,) if heads > 1 else (),
        (dim,) if dim > 1 else (),
    )
    cut = lay.Layout(axes, np.arange(len(view.cols)).reshape(features(axes)))
    return view.arranged(lay.transpose(cut, (0, 2, 1, 3)))


def join_heads(view: View) -> View:
    """[B, H, S, D] -> [B, S, H * D]."""
    moved = lay.transpose(lay.Layout.of(view.axes), (0, 2, 1, 3))
    axes = (moved.axes[0], moved.axes[1], moved.axes[2] + moved.axes[3])
    if not is_feature(axes[2]):
        raise NotLowered(f"axes {view.axes}, expected batch, heads, tokens, features")
    size = lay.size_of(axes[2])
    return view.arranged(lay.Layout((*axes[:2], (size,)), moved.index.reshape(size)))


def _repeat_heads(view: View, times: int) -> View:
    if times == 1:
        return view
    size = lay.size_of(view.axes[1])
    return view.arranged(lay.take(lay.Layout.of(view.axes), 1, np.repeat(np.arange(size), times)))
