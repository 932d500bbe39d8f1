"""The projections of one attention become one linear layer [q | k | v].

Three small matrix products read the same activations three times; one reads them once.
Rotary embeddings between a projection and the attention are kept, now on the joint value.
"""

from __future__ import annotations

import numpy as np

from runtime_py.program import OpKind
from toolchain.lowering.ir import Ir, Node, Weight
from toolchain.lowering.names import joint_name


def fuse_qkv(ir: Ir) -> None:
    """Join separate q, k, v projections of every attention that has them."""
    for node in list(ir.nodes):
        if node.kind is OpKind.ATTENTION:
            _fuse(ir, node)


def _fuse(ir: Ir, attention: Node) -> None:
    parts = [_projection(ir, attention, name) for name in ("q", "k", "v")]
    if any(p is None for p in parts):
        return
    found = [p for p in parts if p is not None]
    linears = [linear for linear, _ in found]
    first = linears[0]
    if len({id(n) for n in linears}) != 3 or any(
        n.ins != first.ins or n.uints != first.uints for n in linears
    ):
        return
    weight = np.concatenate([n.tensors["weight"].array for n in linears])
    hint = joint_name([n.tensors["weight"].hint for n in linears])
    tensors = {"weight": Weight(weight, hint)}
    if any("bias" in n.tensors for n in linears):
        bias = [
            n.tensors["bias"].array if "bias" in n.tensors else np.zeros(ir.width(n.out))
            for n in linears
        ]
        hints = [n.tensors["bias"].hint for n in linears if "bias" in n.tensors]
        tensors["bias"] = Weight(np.concatenate(bias), joint_name(hints))
    at = min(ir.nodes.index(n) for n in linears)
    out = ir.emit(OpKind.LINEAR, len(weight), first.ins, tensors, first.uints)
    ir.nodes.insert(at, ir.nodes.pop())
    value, offset = out, 0
    for name, (linear, rope) in zip(("q", "k", "v"), found, strict=True):
        attention.uints[name + "_offset"] += offset
        if rope is not None:
            turned = ir.value(ir.types[out].rows, ir.width(out))
            rope.ins["x"], rope.out = value, turned
            rope.uints["offset"] += offset
            value = turned
        offset += ir.width(linear.out)
        ir.nodes.remove(linear)
    for name in ("q", "k", "v"):
        attention.ins[name] = value


def _projection(ir: Ir, attention: Node, name: str) -> tuple[Node, Node | None] | None:
    """The bare linear layer behind input ``name``, and the rotary embedding in between."""
    value = attention.ins[name]
    rope = None
    made = ir.producer(value)
    if ir.uses()[value] != [attention]:
        return None
    if made.kind is OpKind.ROPE:
        rope = made
        value = made.ins["x"]
        made = ir.producer(value)
        if ir.uses()[value] != [rope]:
            return None
    if made.kind is not OpKind.LINEAR or "residual" in made.ins or made.uints["activation"]:
        return None
    return made, rope
