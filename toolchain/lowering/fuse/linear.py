"""A linear layer takes the bias, activation and residual that follow it."""

from __future__ import annotations

import numpy as np

from runtime_py.program import Activation, BinaryOp, OpKind
from toolchain.lowering.fuse.match import only_use, whole_constant
from toolchain.lowering.ir import Ir, Node, Weight


def fuse_linear(ir: Ir, *, keep_rows: bool = False) -> None:
    """Fuse ``activation(x @ w.T + bias) + residual`` in that order, as far as it goes.

    Args:
        keep_rows: leave factors as ops instead of multiplying weights.
    """
    for node in list(ir.nodes):
        if node.kind is not OpKind.LINEAR or node not in ir.nodes:
            continue
        while True:
            user = only_use(ir, node.out)
            if user is None or not (
                (not keep_rows and _scale(ir, node, user))
                or _bias(ir, node, user)
                or _activation(node, user)
                or _residual(ir, node, user)
            ):
                break
            _absorb(ir, node, user)


def _absorb(ir: Ir, node: Node, user: Node) -> None:
    """Put ``node`` in ``user``'s place (its other input may be made in between)."""
    at = ir.nodes.index(user)
    ir.nodes.remove(node)
    ir.nodes[at - 1] = node
    node.out = user.out


def _plain(node: Node) -> bool:
    return node.uints.get("activation", 0) == 0 and "residual" not in node.ins


def _scale(ir: Ir, node: Node, user: Node) -> bool:
    """A constant factor before the activation moves into the weights."""
    if not _plain(node):
        return False
    factor: object = None
    if user.kind is OpKind.UNARY and user.uints.get("activation", 0) == 0:
        factor = np.full(ir.width(node.out), user.floats["alpha"])
    else:
        row = whole_constant(user, BinaryOp.MUL)
        factor = None if row is None else np.broadcast_to(row.array, (ir.width(node.out),))
    if not isinstance(factor, np.ndarray):
        return False
    weight = node.tensors["weight"]
    node.tensors["weight"] = Weight(weight.array * factor[:, None], weight.hint)
    if "bias" in node.tensors:
        bias = node.tensors["bias"]
        node.tensors["bias"] = Weight(bias.array * factor, bias.hint)
    return True


def _bias(ir: Ir, node: Node, user: Node) -> bool:
    row = whole_constant(user, BinaryOp.ADD)
    if row is None or not _plain(node):
        return False
    array = np.broadcast_to(row.array, (ir.width(node.out),))
    old = node.tensors.get("bias")
    if old is not None:
        array = array + old.array
    node.tensors["bias"] = Weight(array, row.hint or (old.hint if old else ""))
    return True


def _activation(node: Node, user: Node) -> bool:
    if (
        user.kind is not OpKind.UNARY
        or user.uints["activation"] == Activation.NONE
        or user.floats["alpha"] != 1.0
        or not _plain(node)
    ):
        return False
    node.uints["activation"] = user.uints["activation"]
    return True


def _residual(ir: Ir, node: Node, user: Node) -> bool:
    if (
        user.kind is not OpKind.BINARY
        or user.uints["op"] != BinaryOp.ADD
        or "b" not in user.ins
        or "residual" in node.ins
    ):
        return False
    a, b = user.ins["a"], user.ins["b"]
    other = b if a == node.out else a
    if other == node.out:
        return False
    node.ins["residual"] = other
    return True
