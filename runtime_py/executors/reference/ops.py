"""One short function per op: the meaning of a program.

Each takes the step's `State` and an op, and returns the op's output rows. Arithmetic
is in ``state.dtype``; nothing here is fused, blocked or clever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime_py.executors.base import SeqRow
from runtime_py.executors.reference.dequantize import quantize_activations
from runtime_py.executors.reference.functions import activate
from runtime_py.program import (
    FLAG_CAUSAL,
    FLAG_INTERLEAVED,
    FLAG_SWAP,
    FLAG_UP_FIRST,
    BinaryOp,
    NormMode,
    Op,
    OpKind,
    PoolMode,
    Program,
    TensorFormat,
)

Array = Any


@dataclass(slots=True)
class State:
    """What the ops of one step see.

    Attributes:
        xp: the array namespace.
        tensors: dequantized weights, by tensor index.
        token_ids, positions: integer arrays [T].
        slots: the slots' rows, by slot index; zeros before they are written.
        observe: called with every linear op's index and input rows.
    """

    xp: Any
    dtype: Any
    program: Program
    tensors: Sequence[Array]
    token_ids: Array
    positions: Array
    seqs: Sequence[SeqRow]
    quantize_activations: bool
    observe: Callable[[int, Array], None] | None
    slots: list[Array] = field(default_factory=list)

    def slot(self, op: Op, name: str) -> Array:
        index = op.slot(name)
        return None if index < 0 else self.slots[index]

    def tensor(self, op: Op, name: str) -> Array:
        index = op.tensor(name)
        return None if index < 0 else self.tensors[index]


def embed(s: State, op: Op, index: int) -> Array:
    def rows(name: str, at: Array) -> Array:
        return s.xp.asarray(s.xp.take(s.tensor(op, name), at, axis=0), dtype=s.dtype)

    out = rows("table", s.token_ids) * op.float("scale")
    if op.tensor("positions") >= 0:
        out = out + rows("positions", s.positions + op.uint("position_offset"))
    if op.tensor("constant") >= 0:
        out = out + s.tensor(op, "constant")
    return out


def norm(s: State, op: Op, index: int) -> Array:
    x = s.slot(op, "x")
    if op.slot("residual") >= 0:
        x = x + s.slot(op, "residual")
    if op.out2 >= 0:
        s.slots[op.out2] = x
    groups = s.xp.reshape(x, (x.shape[0], -1, op.uint("group") or x.shape[1]))
    if op.uint("mode") == NormMode.LAYER:
        groups = groups - s.xp.mean(groups, axis=2, keepdims=True)
    variance = s.xp.mean(groups * groups, axis=2, keepdims=True)
    out = groups / s.xp.sqrt(variance + op.float("eps"))
    if op.tensor("gamma") >= 0:
        out = out * s.tensor(op, "gamma")
    if op.tensor("beta") >= 0:
        out = out + s.tensor(op, "beta")
    return s.xp.reshape(out, x.shape)


def linear(s: State, op: Op, index: int) -> Array:
    weight, start = s.tensor(op, "weight"), op.uint("x_offset")
    x = s.slot(op, "x")[:, start : start + weight.shape[1]]
    if s.observe is not None:
        s.observe(index, x)
    fmt = s.program.tensors[op.tensor("weight")].format
    if s.quantize_activations and fmt in (TensorFormat.I8B32, TensorFormat.I4B32):
        x = quantize_activations(s.xp, x)
    out = s.xp.matmul(x, weight.T)
    if op.tensor("bias") >= 0:
        out = out + s.tensor(op, "bias")
    out = activate(s.xp, op.uint("activation"), out)
    return out + s.slot(op, "residual") if op.slot("residual") >= 0 else out


def glu(s: State, op: Op, index: int) -> Array:
    gate, up = s.slot(op, "gate"), s.slot(op, "up")
    if up is None:
        half = gate.shape[1] // 2
        gate, up = gate[:, :half], gate[:, half:]
        if op.flags & FLAG_UP_FIRST:
            gate, up = up, gate
    return activate(s.xp, op.uint("activation"), gate) * up


def rope(s: State, op: Op, index: int) -> Array:
    heads, dim, rotary, start = (op.uint(n) for n in ("heads", "head_dim", "rotary_dim", "offset"))
    x = s.slot(op, "x")
    angle = s.xp.asarray(s.positions, dtype=s.dtype)[:, None, None] * s.tensor(op, "inv_freq")
    cos, sin = (f(angle) * op.float("scale") for f in (s.xp.cos, s.xp.sin))
    part = s.xp.reshape(x[:, start : start + heads * dim], (-1, heads, dim))
    turned, rest = part[:, :, :rotary], part[:, :, rotary:]
    if op.flags & FLAG_INTERLEAVED:
        a, b = turned[:, :, 0::2], turned[:, :, 1::2]
        turned = s.xp.stack([a * cos - b * sin, b * cos + a * sin], axis=3)
        turned = s.xp.reshape(turned, (-1, heads, rotary))
    else:
        a, b = turned[:, :, : rotary // 2], turned[:, :, rotary // 2 :]
        turned = s.xp.concat([a * cos - b * sin, b * cos + a * sin], axis=2)
    flat = s.xp.reshape(s.xp.concat([turned, rest], axis=2), (-1, heads * dim))
    return s.xp.concat([x[:, :start], flat, x[:, start + heads * dim :]], axis=1)


def attention(s: State, op: Op, index: int) -> Array:
    heads, kv_heads, dim = (op.uint(n) for n in ("heads", "kv_heads", "head_dim"))

    def split(name: str, count: int) -> Array:
        start = op.uint(name + "_offset")
        x = s.slot(op, name)[:, start : start + count * dim]
        x = s.xp.permute_dims(s.xp.reshape(x, (-1, count, dim)), (1, 0, 2))
        return s.xp.repeat(x, heads // count, axis=0) if count < heads else x

    q, k, v = split("q", heads), split("k", kv_heads), split("v", kv_heads)
    rows = []
    for first, tokens, _, _ in s.seqs:
        part = slice(first, first + tokens)
        context = _attend(s, op, q[:, part], k[:, part], v[:, part])
        rows.append(s.xp.reshape(s.xp.permute_dims(context, (1, 0, 2)), (tokens, heads * dim)))
    return s.xp.concat(rows, axis=0)


def _attend(s: State, op: Op, q: Array, k: Array, v: Array) -> Array:
    """One sequence: q, k, v [H, n, D] -> [H, n, D]."""
    tokens = q.shape[1]
    scores = s.xp.matmul(q, s.xp.permute_dims(k, (0, 2, 1))) * op.float("scale")
    distance = s.xp.arange(tokens)[None, :] - s.xp.arange(tokens)[:, None]  # key - query
    if op.float("softcap"):
        scores = s.xp.tanh(scores / op.float("softcap")) * op.float("softcap")
    if op.tensor("bias") >= 0:
        bias = s.tensor(op, "bias")
        at = s.xp.reshape(distance + bias.shape[1] // 2, (-1,))
        scores = scores + s.xp.reshape(s.xp.take(bias, at, axis=1), (-1, tokens, tokens))
    hidden = distance > 0 if op.flags & FLAG_CAUSAL else distance > tokens
    if op.uint("window"):
        hidden = hidden | (s.xp.abs(distance) >= op.uint("window"))
    scores = s.xp.where(hidden[None], s.xp.full_like(scores, -float("inf")), scores)
    top = s.xp.max(scores, axis=2, keepdims=True)
    # A query that sees no key at all gets zeros, not 0/0.
    top = s.xp.where(top == -float("inf"), s.xp.zeros_like(top), top)
    weights = s.xp.exp(scores - top)
    total = s.xp.sum(weights, axis=2, keepdims=True)
    return s.xp.matmul(weights, v) / s.xp.where(total == 0, s.xp.ones_like(total), total)


def pool(s: State, op: Op, index: int) -> Array:
    x, start = s.slot(op, "x"), op.uint("out_offset")
    out = s.xp.asarray(s.slots[op.out], copy=True)  # other columns keep their values
    for i, (first, tokens, _, skip) in enumerate(s.seqs):
        rows = x[first + skip : first + tokens]
        out[i, start : start + x.shape[1]] = _pooled(s.xp, op.uint("mode"), rows, skip)
    return out


def _pooled(xp: Any, mode: int, rows: Array, skip: int) -> Array:
    """[n, C] -> [C]; the rows are tokens ``skip`` and on of their sequence."""
    match PoolMode(mode):
        case PoolMode.MEAN:
            return xp.mean(rows, axis=0)
        case PoolMode.CLS:
            return rows[0]
        case PoolMode.MAX:
            return xp.max(rows, axis=0)
        case PoolMode.LAST:
            return rows[-1]
        case PoolMode.MEAN_SQRT_LEN:
            return xp.sum(rows, axis=0) / rows.shape[0] ** 0.5
        case PoolMode.WEIGHTED_MEAN:
            weights = xp.arange(skip + 1, skip + rows.shape[0] + 1, dtype=rows.dtype)
            return xp.matmul(weights, rows) / xp.sum(weights)


def normalize(s: State, op: Op, index: int) -> Array:
    x = s.slot(op, "x")
    length = s.xp.sqrt(s.xp.sum(x * x, axis=1, keepdims=True))
    return x / s.xp.clip(length, op.float("eps"), None)


def unary(s: State, op: Op, index: int) -> Array:
    return activate(s.xp, op.uint("activation"), s.slot(op, "x") * op.float("alpha"))


def binary(s: State, op: Op, index: int) -> Array:
    a, b = s.slot(op, "a"), s.slot(op, "b")
    if b is None:
        b = s.tensor(op, "constant")
        if op.flags & FLAG_SWAP:
            a, b = b, a
    match BinaryOp(op.uint("op")):
        case BinaryOp.ADD:
            return a + b
        case BinaryOp.SUB:
            return a - b
        case BinaryOp.MUL:
            return a * b
        case BinaryOp.DIV:
            return a / b


OPS: dict[OpKind, Callable[[State, Op, int], Array]] = {
    OpKind.EMBED: embed,
    OpKind.NORM: norm,
    OpKind.LINEAR: linear,
    OpKind.GLU: glu,
    OpKind.ROPE: rope,
    OpKind.ATTENTION: attention,
    OpKind.POOL: pool,
    OpKind.NORMALIZE: normalize,
    OpKind.UNARY: unary,
    OpKind.BINARY: binary,
}
