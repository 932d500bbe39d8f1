"""Ops that compute the same from the same become one."""

from __future__ import annotations

from toolchain.lowering.ir import Ir, Node


def merge_equal(ir: Ir) -> None:
    """Keep the first of several equal nodes.

    The rules emit an op where a value is needed, so one that is needed twice (a scaled
    embedding, by the first norm and by the residual) may be there twice.
    """
    known: dict[object, Node] = {}
    for node in list(ir.nodes):
        first = known.setdefault(_key(node), node)
        if first is not node and first.out2 < 0 and node.out2 < 0:
            ir.nodes.remove(node)
            ir.replace(node.out, first.out)


def _key(node: Node) -> object:
    parts = (node.ins, node.uints, node.floats)
    arrays = tuple(sorted((k, id(w.array)) for k, w in node.tensors.items()))
    return node.kind, node.flags, node.modes, arrays, *(tuple(sorted(p.items())) for p in parts)
