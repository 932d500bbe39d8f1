"""Element-wise arithmetic: biases, residuals, activations, gates, scales, masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from runtime_py.program import FLAG_UP_FIRST, Activation, BinaryOp, OpKind
from toolchain.lowering.activations import FUNCTIONS, erf, recognise
from toolchain.lowering.context import Context, describe
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.graph import GraphNode
from toolchain.lowering.layout import spread
from toolchain.lowering.rules import norms
from toolchain.lowering.rules.embedding import add_structural
from toolchain.lowering.rules.registry import rule
from toolchain.lowering.rules.rotary import add_mixes, modulate
from toolchain.lowering.values import (
    Data,
    Floats,
    MaskTerm,
    Mix,
    NanCheck,
    Pointwise,
    RowStat,
    Scores,
    Struct,
    View,
)

_UNARY: dict[str, Callable[[Floats, dict[str, Any]], Floats]] = {
    "Erf": lambda x, a: erf(x),
    "Tanh": lambda x, a: np.tanh(x),
    "Sigmoid": lambda x, a: FUNCTIONS[Activation.SIGMOID](x),
    "Relu": lambda x, a: np.maximum(x, 0.0),
    "LeakyRelu": lambda x, a: np.where(x > 0, x, float(a.get("alpha", 0.01)) * x),
    "Elu": lambda x, a: np.where(
        x > 0, x, float(a.get("alpha", 1.0)) * np.expm1(np.minimum(x, 0.0))
    ),
    "Softplus": lambda x, a: FUNCTIONS[Activation.SOFTPLUS](x),
    "HardSwish": lambda x, a: FUNCTIONS[Activation.HARD_SWISH](x),
    "Mish": lambda x, a: FUNCTIONS[Activation.MISH](x),
    "Exp": lambda x, a: np.exp(x),
    "Abs": lambda x, a: np.abs(x),
    "Swish": lambda x, a: x * FUNCTIONS[Activation.SIGMOID](float(a.get("alpha", 1.0)) * x),
    "Gelu": lambda x, a: FUNCTIONS[
        Activation.GELU_TANH if a.get("approximate") == "tanh" else Activation.GELU
    ](x),
}


def pointwise(x: Data) -> Pointwise | None:
    """``x`` as a scalar function of a view, or None."""
    if isinstance(x, Pointwise):
        return x
    if isinstance(x, View):
        base, scale = x.split_scale()
        return Pointwise(base, lambda t: scale * t, scale)
    return None


def compose(x: Data, outer: Callable[[Floats], Floats]) -> Pointwise:
    """``outer(x)``."""
    inner = pointwise(x)
    if inner is None:
        raise NotLowered(f"applies a function to {describe(x)}, expected token vectors")
    f = inner.function
    return Pointwise(inner.base, lambda t: outer(f(t)), inner.alpha)


@rule(*_UNARY)
def unary(ctx: Context, node: GraphNode) -> Data:
    x = ctx.operand(0)
    if isinstance(x, Scores) and node.op == "Tanh":
        return replace(x, pending_tanh=True)
    function, attrs = _UNARY[node.op], node.attrs
    return compose(x if pointwise(x) else ctx.as_view(x), lambda t: function(t, attrs))


@rule("Neg")
def neg(ctx: Context, node: GraphNode) -> Data:
    return times(ctx, ctx.operand(0), -1.0)


@rule("Sqrt", "Reciprocal")
def root(ctx: Context, node: GraphNode) -> Data:
    x = ctx.operand(0)
    if not isinstance(x, RowStat):
        raise NotLowered(f"{node.op} of {describe(x)}, expected of a row's variance")
    if node.op == "Sqrt":
        return norms.root(x, 1)
    if x.stage != "root":
        raise NotLowered(f"reciprocal of the {x.stage} of a row")
    return replace(x, power=-x.power)


@rule("Pow")
def power(ctx: Context, node: GraphNode) -> Data:
    x, exponent = ctx.operand(0), ctx.scalar(ctx.operand(1))
    if exponent is None:
        raise NotLowered("raises to a power that is not constant")
    if isinstance(x, RowStat) and x.stage == "mean_square" and abs(exponent) == 0.5:
        return norms.root(x, 1 if exponent > 0 else -1)
    if exponent == 2.0 and isinstance(x, RowStat):
        squared = norms.square(x)
        if squared is not None:
            return squared
    if exponent == 2.0 and isinstance(x, View) and _feeds(ctx, node, "ReduceMean"):
        return RowStat("square", x)
    return compose(x, lambda t: t**exponent)


def _feeds(ctx: Context, node: GraphNode, op: str) -> bool:
    return any(node.outputs[0] in n.inputs and n.op == op for n in ctx.graph.nodes)


@rule("Add")
def add(ctx: Context, node: GraphNode) -> Data:
    a, b = ctx.operand(0), ctx.operand(1)
    return plus(ctx, b, a, 1.0) if isinstance(a, Struct) else plus(ctx, a, b, 1.0)


@rule("Sub")
def sub(ctx: Context, node: GraphNode) -> Data:
    a, b = ctx.operand(0), ctx.operand(1)
    if isinstance(a, Struct):
        return plus(ctx, times(ctx, b, -1.0), a, 1.0)
    return norms.centered(a, b) or plus(ctx, a, b, -1.0)


def plus(ctx: Context, a: Data, b: Data, sign: float) -> Data:
    """``a + sign * b`` where ``a`` is on the data path."""
    if isinstance(b, Struct):
        return _plus_structural(ctx, a, b, sign)
    if isinstance(a, Mix) and isinstance(b, Mix):
        return add_mixes(ctx, a, b.scaled(sign))
    f, g = pointwise(a), pointwise(b)
    if f and g and f.base.same(g.base):
        fa, fb = f.function, g.function
        return Pointwise(f.base, lambda t: fa(t) + sign * fb(t))
    left, right = ctx.as_view(a), ctx.as_view(b)
    if left.axes != right.axes:
        raise NotLowered(f"adds tensors with axes {left.axes} and {right.axes}")
    x, y = ctx.dense(left), ctx.dense(right)
    op = BinaryOp.ADD if sign > 0 else BinaryOp.SUB
    out = ctx.ir.emit(OpKind.BINARY, ctx.ir.width(x), {"a": x, "b": y}, uints={"op": op})
    return ctx.fresh(out, left.axes)


def _plus_structural(ctx: Context, a: Data, b: Struct, sign: float) -> Data:
    number = ctx.scalar(b)
    if isinstance(a, RowStat):
        if a.stage != "mean_square" or number is None or number * sign < 0:
            raise NotLowered(f"adds something to the {a.stage} of a row")
        return replace(a, eps=a.eps + number)
    if isinstance(a, Scores):
        if a.is_probability or a.pending_tanh:
            raise NotLowered("adds to attention probabilities")
        return replace(a, terms=(*a.terms, MaskTerm("add", b.name, factor=sign)))
    if number is not None and pointwise(a):
        return compose(a, lambda t: t + sign * number)
    view = ctx.as_view(a)
    row = ctx.constant(b)
    if row is not None:
        return ctx.add_constant(view, sign * spread(row, view.axes), b.name)
    if sign < 0:
        raise NotLowered("subtracts a tensor that depends on positions")
    return add_structural(ctx, view, b.name)


@rule("Mul")
def mul(ctx: Context, node: GraphNode) -> Data:
    a, b = ctx.operand(0), ctx.operand(1)
    if isinstance(a, Struct):
        a, b = b, a
    if isinstance(b, Struct):
        return _times_structural(ctx, a, b, 1)
    for x, stat in ((a, b), (b, a)):
        if isinstance(stat, RowStat):
            done = norms.normalised(ctx, x, stat, -1)
            if done is not None:
                return done
    if isinstance(a, RowStat) or (isinstance(a, View) and a.same(b)):
        squared = norms.square(a) if _feeds(ctx, node, "ReduceMean") else None
        if squared is not None and (a is b or (isinstance(a, View) and a.same(b))):
            return squared
    return product(ctx, a, b)


@rule("Div")
def div(ctx: Context, node: GraphNode) -> Data:
    a, b = ctx.operand(0), ctx.operand(1)
    if isinstance(a, Struct):
        number = ctx.scalar(a)
        if isinstance(b, RowStat) and b.stage == "root" and number == 1.0:
            return replace(b, power=-b.power)
        if number is None:
            raise NotLowered("divides a tensor by token vectors")
        return compose(b, lambda t: number / t)
    if isinstance(b, Struct):
        return _times_structural(ctx, a, b, -1)
    if isinstance(b, RowStat):
        done = norms.normalised(ctx, a, b, 1)
        if done is not None:
            return done
    f, g = pointwise(a), pointwise(b)
    if f and g and f.base.same(g.base):
        fa, fb = f.function, g.function
        return Pointwise(f.base, lambda t: fa(t) / fb(t))
    raise NotLowered(f"divides {describe(a)} by {describe(b)}")


def product(ctx: Context, a: Data, b: Data) -> Data:
    """``a * b`` of two data-path tensors: a scalar function, or a gate."""
    f, g = pointwise(a), pointwise(b)
    if f is None or g is None:
        raise NotLowered(f"multiplies {describe(a)} by {describe(b)}")
    if f.base.same(g.base):
        fa, fb = f.function, g.function
        return Pointwise(f.base, lambda t: fa(t) * fb(t))
    gate, up = (a, b) if isinstance(a, Pointwise) else (b, a)
    up_view = ctx.as_view(up)
    activation, factor = Activation.NONE, 1.0
    if isinstance(gate, Pointwise):
        found = recognise(gate.function, gate.alpha)
        if found and not found.offset and found.alpha == 1.0:
            activation, factor, gate = found.activation, found.factor, gate.base
    gate_view, scale = ctx.as_view(gate).split_scale()
    if scale != 1.0:
        if activation is Activation.NONE:
            factor *= scale
        else:
            gate_view = gate_view.scaled(scale)
    up_view, scale = up_view.split_scale()
    return _gate(ctx, gate_view, up_view, activation).scaled(factor * scale)


def _gate(ctx: Context, gate: View, up: View, activation: Activation) -> View:
    if gate.axes != up.axes:
        raise NotLowered(f"multiplies tensors with axes {gate.axes} and {up.axes}")
    width = len(gate.cols)
    uints = {"activation": activation}
    if gate.value == up.value and gate.coef is None and up.coef is None:
        columns = np.arange(width)
        for first, second, flag in ((gate, up, 0), (up, gate, FLAG_UP_FIRST)):
            if (
                ctx.ir.width(gate.value) == 2 * width
                and np.array_equal(first.cols, columns)
                and np.array_equal(second.cols, columns + width)
            ):
                out = ctx.ir.emit(OpKind.GLU, width, {"gate": gate.value}, uints=uints, flags=flag)
                return ctx.fresh(out, gate.axes)
    ins = {"gate": ctx.dense(gate), "up": ctx.dense(up)}
    return ctx.fresh(ctx.ir.emit(OpKind.GLU, width, ins, uints=uints), gate.axes)


def times(ctx: Context, x: Data, factor: float) -> Data:
    """``x * factor``."""
    if isinstance(x, View | Mix):
        return x.scaled(factor)
    if isinstance(x, Scores):
        return _scale_scores(x, factor)
    return compose(x, lambda t: factor * t)


def _scale_scores(x: Scores, factor: float) -> Scores:
    if x.pending_tanh:
        if x.softcap or x.terms or factor <= 0:
            raise NotLowered("scales capped scores twice")
        # tanh(s / c) * c: what was the scale divides by the cap
        return replace(x, pending_tanh=False, softcap=factor, scale=x.scale * factor)
    if x.is_probability:
        if factor != 1.0:
            raise NotLowered("scales attention probabilities")
        return x
    if x.softcap:
        raise NotLowered("scales scores after capping them")
    terms = tuple(replace(t, factor=t.factor * factor, fill=t.fill * factor) for t in x.terms)
    return replace(x, scale=x.scale * factor, terms=terms)


def _times_structural(ctx: Context, a: Data, b: Struct, sign: int) -> Data:
    number = ctx.scalar(b)
    if number is not None:
        if isinstance(a, RowStat):
            raise NotLowered(f"scales the {a.stage} of a row")
        return times(ctx, a, number**sign)
    if isinstance(a, Scores):
        raise NotLowered("multiplies attention scores by a tensor")
    mixed = a if isinstance(a, Mix) else ctx.as_view(a)
    row = ctx.constant(b)
    if row is not None:
        factor = spread(row, mixed.axes) ** sign
        if isinstance(mixed, View):
            fused = norms.with_gamma(ctx, mixed, factor, _gamma_name(ctx, b.name))
            if fused is not None:
                return fused
        return mixed.scaled(factor)
    if _is_one(ctx, b.name):
        return mixed
    if sign < 0:
        raise NotLowered("divides by a tensor that depends on positions")
    return modulate(ctx, mixed, b.name)


def _gamma_name(ctx: Context, name: str) -> str:
    origin = ctx.graph.origin(name)
    return origin if origin.endswith(".weight") else ctx.module_weight("Mul") or origin


def _is_one(ctx: Context, name: str) -> bool:
    """Whether a [batch, sequence, 1] tensor is 1 at every token that exists."""
    for value, probe in zip(ctx.prober.small(name), ctx.prober.probes, strict=True):
        array = np.asarray(value, np.float64)
        if array.shape not in ((*probe.valid.shape, 1), probe.valid.shape):
            return False
        if not np.all(array.reshape(probe.valid.shape)[probe.valid] == 1.0):
            return False
    return True


@rule("Where")
def where(ctx: Context, node: GraphNode) -> Data:
    condition, a, b = (ctx.operand(i) for i in range(3))
    if isinstance(condition, NanCheck):
        if b is condition.of and ctx.scalar(a) == 0.0:
            return b
        raise NotLowered("replaces NaN by something that is not 0")
    if not isinstance(condition, Struct):
        raise NotLowered("chooses by token vectors")
    for x, other, kind in ((a, b, "keep"), (b, a, "drop")):
        if isinstance(x, Scores) and not x.is_probability and not x.pending_tanh:
            fill = ctx.scalar(other)
            if fill is None:
                raise NotLowered("masks scores with something that is no constant")
            term = MaskTerm("keep" if kind == "keep" else "drop", condition.name, fill=fill)
            return replace(x, terms=(*x.terms, term))
    raise NotLowered("chooses between tensors, expected a mask over attention scores")
