"""ONNX Runtime's fused operators (``com.microsoft``), as its transformer optimizer writes them.

Taken apart into the same pieces that the unfused operators lower to.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from runtime_py.program import Activation, BinaryOp, NormMode, OpKind
from toolchain.lowering import layout as lay
from toolchain.lowering.activations import FUNCTIONS
from toolchain.lowering.context import Context
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.rules.attention import (
    attend,
    join_heads,
    operator_mask,
    scores,
    split_heads,
)
from toolchain.lowering.rules.elementwise import compose
from toolchain.lowering.rules.embedding import (
    add_positions,
    add_row,
    add_structural,
    axes_of_output,
    embed,
    is_token_ids,
)
from toolchain.lowering.rules.linear import linear
from toolchain.lowering.rules.norms import emit_norm
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.values import Data, MaskTerm, Struct, View

MS = "com.microsoft"


@rule("Gelu", "BiasGelu", "FastGelu", "QuickGelu", domain=MS)
def gelus(ctx: Context, node: GraphNode) -> Data:
    x = ctx.view(0)
    if node.input(1):
        x = with_bias(ctx, x, node.input(1))
    if node.op == "QuickGelu":
        alpha = float(node.attrs.get("alpha", 1.702))
        return compose(x, lambda t: t * FUNCTIONS[Activation.SIGMOID](alpha * t))
    kind = Activation.GELU_TANH if node.op == "FastGelu" else Activation.GELU
    return compose(x, FUNCTIONS[kind])


def with_bias(ctx: Context, x: View, name: str) -> View:
    """``x`` plus constant vector ``name``."""
    row = ctx.constant(ctx.get(name))
    if row is None:
        raise NotLowered("adds a bias that is not constant")
    return ctx.add_constant(x, lay.spread(row, x.axes), name)


def add_views(ctx: Context, a: View, b: View) -> View:
    """``a + b``."""
    if a.axes != b.axes:
        raise NotLowered(f"adds tensors with axes {a.axes} and {b.axes}")
    x, y = ctx.dense(a), ctx.dense(b)
    uints = {"op": BinaryOp.ADD}
    return ctx.fresh(
        ctx.ir.emit(OpKind.BINARY, ctx.ir.width(x), {"a": x, "b": y}, uints=uints), a.axes
    )


@rule("SkipLayerNormalization", domain=MS)
def skip_layer_norm(ctx: Context, node: GraphNode) -> list[Data]:
    total = _skip(ctx, node, node.input(4))
    eps = float(node.attrs.get("epsilon", 1e-12))
    out = emit_norm(ctx, total, NormMode.LAYER, eps, node.input(2), node.input(3))
    return [out, None, None, total]


@rule("SkipSimplifiedLayerNormalization", domain=MS)
def skip_rms_norm(ctx: Context, node: GraphNode) -> list[Data]:
    total = _skip(ctx, node, node.input(3))
    eps = float(node.attrs.get("epsilon", 1e-12))
    return [emit_norm(ctx, total, NormMode.RMS, eps, node.input(2)), None, None, total]


def _skip(ctx: Context, node: GraphNode, bias: str) -> View:
    a, b = ctx.operand(0), ctx.operand(1)
    if isinstance(a, Struct):
        a, b = b, a
    x = ctx.as_view(a)
    if bias:
        x = with_bias(ctx, x, bias)
    if isinstance(b, Struct):
        row = ctx.constant(b)
        if row is not None:
            return with_bias(ctx, x, b.name)
        return add_structural(ctx, x, b.name)
    return add_views(ctx, x, ctx.as_view(b))


@rule("SimplifiedLayerNormalization", domain=MS)
def simplified_layer_norm(ctx: Context, node: GraphNode) -> Data:
    eps = float(node.attrs.get("epsilon", 1e-5))
    return emit_norm(ctx, ctx.view(0), NormMode.RMS, eps, node.input(1))


@rule("EmbedLayerNormalization", domain=MS)
def embed_layer_norm(ctx: Context, node: GraphNode) -> list[Data]:
    """Inputs: ids, segments, word, position and segment tables, gamma, beta, mask, positions."""
    if not is_token_ids(ctx, node.inputs[0]):
        raise NotLowered("looks up something that is not the token ids")
    x = embed(ctx, node.inputs[2], axes_of_output(ctx, node.outputs[0]))
    limit = ctx.max_positions
    table = ctx.constant(ctx.get(node.inputs[3]))
    if table is None or not limit:
        raise NotLowered("position table is not constant, or the position limit is unknown")
    at = np.arange(limit)
    if node.input(8):
        at = np.asarray(ctx.prober.long(node.inputs[8], limit)).ravel()
    if at.max() >= len(table):
        raise NotLowered(f"position table has {len(table)} rows, the model {limit} positions")
    x = add_positions(ctx, x, table[at], node.inputs[3])
    if node.input(1) and node.input(4):
        segments = np.asarray(ctx.prober.long(node.inputs[1], min(limit, 8)))
        if segments.any():
            raise NotLowered("uses segments other than 0")
        types = ctx.constant(ctx.get(node.inputs[4]))
        if types is None:
            raise NotLowered("segment table is not constant")
        x = add_row(ctx, x, types[0], node.inputs[4])
    eps = float(node.attrs.get("epsilon", 1e-12))
    return [emit_norm(ctx, x, NormMode.LAYER, eps, node.input(5), node.input(6)), None, x]


@rule("Attention", domain=MS)
def attention(ctx: Context, node: GraphNode) -> Data:
    """Self-attention with its own QKV projection: input, weight, bias, mask, past, bias."""
    if node.input(4) or node.attrs.get("do_rotary") or node.attrs.get("qkv_hidden_sizes"):
        raise NotLowered("has past keys, rotary or unequal sizes")
    heads = int(node.attrs["num_heads"])
    qkv = linear(ctx, ctx.view(0), node.inputs[1])
    if node.input(2):
        qkv = with_bias(ctx, qkv, node.inputs[2])
    width = len(qkv.cols) // 3
    parts = [
        qkv.arranged(lay.take(lay.Layout.of(qkv.axes), 2, np.arange(i * width, (i + 1) * width)))
        for i in range(3)
    ]
    return _self_attention(ctx, node, parts, heads, node.input(3), node.input(5))


@rule("MultiHeadAttention", domain=MS)
def multi_head_attention(ctx: Context, node: GraphNode) -> Data:
    """query, key, value [B, S, H * D], bias [3 * H * D], padding mask, score bias."""
    if any(node.input(i) for i in (6, 7)):
        raise NotLowered("keeps past keys, expected an encoder's attention")
    heads = int(node.attrs["num_heads"])
    parts = [ctx.view(i) for i in range(3)]
    if any(len(p.axes) != 3 for p in parts):
        raise NotLowered("has packed inputs, expected query, key and value apart")
    if node.input(3):
        row = ctx.constant(ctx.get(node.inputs[3]))
        if row is None:
            raise NotLowered("adds a bias that is not constant")
        thirds = np.split(row, 3)
        parts = [ctx.add_constant(p, t, node.inputs[3]) for p, t in zip(parts, thirds, strict=True)]
    return _self_attention(ctx, node, parts, heads, node.input(4), node.input(5))


def _self_attention(
    ctx: Context, node: GraphNode, parts: list[View], heads: int, mask: str, bias: str
) -> View:
    q, k, v = (split_heads(p, heads) for p in parts)
    k = k.arranged(lay.transpose(lay.Layout.of(k.axes), (0, 1, 3, 2)))
    p = scores(ctx, q, k)
    scale = float(node.attrs.get("scale", 0.0)) or 1.0 / math.sqrt(lay.size_of(q.axes[3]))
    terms: tuple[MaskTerm, ...] = ()
    if mask:
        terms += (_padding(ctx, mask),)
    if bias:
        terms += (operator_mask(ctx, bias),)
    p = replace(
        p,
        scale=scale,
        terms=terms,
        causal=bool(node.attrs.get("unidirectional", 0)),
        is_probability=True,
    )
    return join_heads(attend(ctx, p, v))


def _padding(ctx: Context, name: str) -> MaskTerm:
    """A mask input: [B] lengths, or [B, S] ones for tokens, or already [B, 1, S, S]."""
    value = np.asarray(ctx.prober.small(name)[0])
    if value.ndim == 1:
        return MaskTerm("lengths", name, fill=-math.inf)
    if value.ndim == 2:
        return MaskTerm("tokens", name, fill=-math.inf)
    return MaskTerm("keep", name, fill=-math.inf)
