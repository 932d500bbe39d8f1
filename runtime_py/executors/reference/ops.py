"""One short function per op: the meaning of a program.

Each takes the step's `State` and an op, and returns the op's output rows (None where the
op has no output). Arithmetic is in ``state.dtype``; nothing here is fused, blocked or clever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runtime_py.executors.reference.attention import attention, cache, rope
from runtime_py.executors.reference.dequantize import BLOCK_FORMATS, quantize_activations
from runtime_py.executors.reference.functions import activate
from runtime_py.executors.reference.state import State
from runtime_py.program import (
    FLAG_SWAP,
    FLAG_UP_FIRST,
    BinaryOp,
    NormMode,
    Op,
    OpKind,
    PoolMode,
)

Array = Any


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
    start, columns = op.uint("offset"), op.uint("columns") or x.shape[1]
    part = x[:, start : start + columns]
    group = op.uint("group") or columns
    groups = s.xp.reshape(part, (x.shape[0], columns // group, group))
    if op.uint("mode") == NormMode.LAYER:
        groups = groups - s.xp.mean(groups, axis=2, keepdims=True)
    variance = s.xp.mean(groups * groups, axis=2, keepdims=True)
    out = groups / s.xp.sqrt(variance + op.float("eps"))
    if op.tensor("gamma") >= 0:
        out = out * s.tensor(op, "gamma")
    if op.tensor("beta") >= 0:
        out = out + s.tensor(op, "beta")
    out = s.xp.reshape(out, part.shape)
    if columns == x.shape[1]:
        return out
    return s.xp.concat([x[:, :start], out, x[:, start + columns :]], axis=1)


def linear(s: State, op: Op, index: int) -> Array:
    weight, start = s.tensor(op, "weight"), op.uint("x_offset")
    x = s.slot(op, "x")[:, start : start + weight.shape[1]]
    if s.observe is not None:
        s.observe(index, x)
    fmt = s.program.tensors[op.tensor("weight")].format
    if s.quantize_activations and fmt in BLOCK_FORMATS:
        x = quantize_activations(s.xp, x, op.uint("activation_bits") or 8)
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


def rows(s: State, op: Op, index: int) -> Array:
    return s.xp.take(s.slot(op, "x"), s.wanted, axis=0)


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
    OpKind.CACHE: cache,
    OpKind.ROWS: rows,
}
