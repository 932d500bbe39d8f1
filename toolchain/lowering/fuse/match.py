"""Small questions that rewrites ask of the graph."""

from __future__ import annotations

from runtime_py.program import FLAG_SWAP, BinaryOp, OpKind
from toolchain.lowering.ir import Ir, Node, Weight


def only_use(ir: Ir, value: int) -> Node | None:
    """The one node that reads ``value``, if exactly one does and it is not the output."""
    readers = ir.uses().get(value, [])
    return readers[0] if len(readers) == 1 and ir.output != value else None


def whole_constant(node: Node, *ops: BinaryOp) -> Weight | None:
    """The constant of a BINARY with a constant that applies one of ``ops``, or None."""
    if node.kind is not OpKind.BINARY or "constant" not in node.tensors or node.flags & FLAG_SWAP:
        return None
    return node.tensors["constant"] if node.uints["op"] in {int(o) for o in ops} else None
