"""The projections of one attention become one linear layer [q | k | v].

Three small matrix products read the same activations three times; one reads them once.
What lies between a projection and the attention (a norm over each head, a rotary
embedding) is kept, now on columns of the joint value.
"""

from __future__ import annotations

from dataclasses import dataclass

from runtime_py.program import OpKind
from toolchain.lowering.fuse.gate import join_linears
from toolchain.lowering.ir import Ir, Node


@dataclass(frozen=True, slots=True)
class _Part:
    """A projection, and the ops between it and the attention, in order."""

    linear: Node
    between: list[Node]


def fuse_qkv(ir: Ir) -> None:
    """Join separate q, k, v projections of every attention that has them."""
    for node in list(ir.nodes):
        if node.kind is OpKind.ATTENTION:
            _fuse(ir, node)


def _fuse(ir: Ir, attention: Node) -> None:
    found = [_part(ir, attention, name) for name in ("q", "k", "v")]
    parts = [p for p in found if p is not None]
    if len(parts) != 3:
        return
    linears = [p.linear for p in parts]
    first = linears[0]
    if len({id(n) for n in linears}) != 3 or any(
        n.ins != first.ins or n.uints != first.uints for n in linears
    ):
        return
    widths = [ir.width(n.out) for n in linears]
    # a joint value that is normed in place is rotated after all norms
    steps = [step for p in parts for step in enumerate(p.between)]
    value = join_linears(ir, linears, "qkv")
    starts = (0, widths[0], widths[0] + widths[1])
    for start, width, part in zip(starts, widths, parts, strict=True):
        for node in part.between:
            if node.kind is OpKind.NORM:
                node.uints["columns"] = width
            node.uints["offset"] = node.uints.get("offset", 0) + start
    at = ir.nodes.index(attention)
    for _, node in sorted(steps, key=lambda step: step[0]):
        ir.nodes.remove(node)
        ir.nodes.insert(at - 1, node)
        node.ins["x"], value = value, _like(ir, value)
        node.out = value
    for name, start in zip(("q", "k", "v"), starts, strict=True):
        attention.ins[name] = value
        attention.uints[name + "_offset"] += start


def _like(ir: Ir, value: int) -> int:
    return ir.value(ir.types[value].rows, ir.width(value))


def _part(ir: Ir, attention: Node, name: str) -> _Part | None:
    """The bare linear layer behind input ``name``, and what lies in between."""
    value, reader = attention.ins[name], attention
    between: list[Node] = []
    uses = ir.uses()
    while True:
        if uses[value] != [reader]:
            return None
        made = ir.producer(value)
        if made.kind is OpKind.LINEAR:
            break
        if not (made.kind is OpKind.ROPE or _is_head_norm(made)):
            return None
        between.insert(0, made)
        value, reader = made.ins["x"], made
    if "residual" in made.ins or made.uints["activation"]:
        return None
    return _Part(made, between)


def _is_head_norm(node: Node) -> bool:
    return (
        node.kind is OpKind.NORM
        and "residual" not in node.ins
        and node.out2 < 0
        and not node.uints.get("columns")
    )
