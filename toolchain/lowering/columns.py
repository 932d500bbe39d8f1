"""Makes a value hold exactly some columns of another, by giving its producer fewer outputs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from runtime_py.program import BinaryOp, OpKind
from toolchain.lowering.errors import NotLowered
from toolchain.lowering.ir import Ir, Weight

Index = NDArray[np.int64]
Floats = NDArray[np.float64]


def select(ir: Ir, value: int, cols: Index, coef: Floats | None = None) -> int:
    """A value with ``value[:, cols] * coef`` as its columns.

    Raises:
        NotLowered: the op that makes ``value`` cannot make a part of it.
    """
    if not np.array_equal(cols, np.arange(ir.width(value))):
        value = _columns(ir, value, cols)
    if coef is None:
        return value
    made = ir.producer(value)
    if np.all(coef == coef[0]) and made.kind is OpKind.EMBED and len(made.tensors) == 1:
        scale = {"scale": made.floats["scale"] * float(coef[0])}
        return ir.emit(OpKind.EMBED, len(cols), tensors=made.tensors, floats=scale)
    if np.all(coef == coef[0]):
        return ir.emit(OpKind.UNARY, len(cols), {"x": value}, floats={"alpha": float(coef[0])})
    return ir.emit(
        OpKind.BINARY,
        len(cols),
        {"a": value},
        {"constant": Weight(coef)},
        {"op": BinaryOp.MUL},
        rows=ir.types[value].rows,
    )


def _columns(ir: Ir, value: int, cols: Index) -> int:
    made = ir.producer(value)
    width = len(cols)
    if made.kind is OpKind.LINEAR and "residual" not in made.ins:
        tensors = {k: Weight(w.array[cols], w.hint) for k, w in made.tensors.items()}
        return ir.emit(made.kind, width, made.ins, tensors, made.uints, made.floats)
    if made.kind is OpKind.EMBED:
        tensors = {k: Weight(w.array[..., cols], w.hint) for k, w in made.tensors.items()}
        return ir.emit(made.kind, width, made.ins, tensors, made.uints, made.floats)
    if made.kind is OpKind.UNARY:
        x = _columns(ir, made.ins["x"], cols)
        return ir.emit(made.kind, width, {"x": x}, uints=made.uints, floats=made.floats)
    if made.kind is OpKind.BINARY:
        ins = {k: _columns(ir, v, cols) for k, v in made.ins.items()}
        tensors = {
            k: Weight(w.array if w.array.size == 1 else w.array[cols], w.hint)
            for k, w in made.tensors.items()
        }
        return ir.emit(made.kind, width, ins, tensors, made.uints, flags=made.flags)
    raise NotLowered(
        f"needs {width} of the {ir.width(value)} columns of a {made.kind.name}, "
        "expected all of them in order"
    )
