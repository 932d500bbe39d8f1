"""The gate's and the up projection of one GLU become one linear layer [gate | up]."""

from __future__ import annotations

import numpy as np

from runtime_py.program import Activation, OpKind
from toolchain.lowering.fuse.match import only_use
from toolchain.lowering.ir import Ir, Node, Weight
from toolchain.lowering.names import joint_name


def fuse_gates(ir: Ir) -> None:
    """Join the projections of every GLU that has two."""
    for glu in [n for n in ir.nodes if n.kind is OpKind.GLU and "up" in n.ins]:
        gate, up = (ir.producer(glu.ins[n]) for n in ("gate", "up"))
        if gate is not up and all(_plain(ir, n, glu) for n in (gate, up)) and _alike(gate, up):
            out = join_linears(ir, [gate, up], "gate_up")
            glu.ins = {"gate": out}


def _plain(ir: Ir, node: Node, glu: Node) -> bool:
    return (
        node.kind is OpKind.LINEAR
        and "residual" not in node.ins
        and node.uints["activation"] == Activation.NONE
        and only_use(ir, node.out) is glu
    )


def _alike(a: Node, b: Node) -> bool:
    return (
        a.ins == b.ins
        and a.uints == b.uints
        and a.tensors["weight"].array.shape == b.tensors["weight"].array.shape
    )


def join_linears(ir: Ir, linears: list[Node], name: str) -> int:
    """Put one linear layer with all their rows in place of ``linears``; returns its value.

    They read the same columns of one value; ``name`` is what their common part is called.
    """
    first = linears[0]
    weight = np.concatenate([n.tensors["weight"].array for n in linears])
    hint = joint_name([n.tensors["weight"].hint for n in linears], name)
    tensors = {"weight": Weight(weight, hint)}
    if any("bias" in n.tensors for n in linears):
        bias = [
            n.tensors["bias"].array if "bias" in n.tensors else np.zeros(ir.width(n.out))
            for n in linears
        ]
        hints = [n.tensors["bias"].hint for n in linears if "bias" in n.tensors]
        tensors["bias"] = Weight(np.concatenate(bias), joint_name(hints, name))
    at = min(ir.nodes.index(n) for n in linears)
    out = ir.emit(OpKind.LINEAR, len(weight), first.ins, tensors, first.uints)
    ir.nodes.insert(at, ir.nodes.pop())
    for n in linears:
        ir.nodes.remove(n)
    return out
