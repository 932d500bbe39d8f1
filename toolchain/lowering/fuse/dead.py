"""Removes ops whose results nobody reads."""

from __future__ import annotations

from runtime_py.program import OpKind
from toolchain.lowering.ir import Ir


def remove_dead(ir: Ir) -> None:
    """Keep the nodes that the output needs, and those that write the cache."""
    live = {ir.output}
    kept = []
    for node in reversed(ir.nodes):
        if node.out in live or node.out2 in live or node.kind is OpKind.CACHE:
            kept.append(node)
            live.update(node.ins.values())
    ir.nodes = kept[::-1]
