"""Slots by liveness: a value's slot is free again after its last reader."""

from __future__ import annotations

from runtime_py.program import OpKind, Slot
from toolchain.lowering.ir import Ir, Node


def assign_slots(ir: Ir) -> tuple[list[Slot], dict[int, int]]:
    """The slots, and the slot of every value.

    A slot has a fixed width, so only values of equal rows and width share one. An op never
    writes a slot that it reads (backends may then bind inputs and outputs separately),
    but for a norm of some columns, which works in place.
    """
    last: dict[int, int] = {ir.output: len(ir.nodes)}
    for i, node in enumerate(ir.nodes):
        for value in node.ins.values():
            last[value] = max(last.get(value, 0), i)
    slots: list[Slot] = []
    free: dict[Slot, list[int]] = {}
    slot_of: dict[int, int] = {}
    for i, node in enumerate(ir.nodes):
        for value in (node.out, node.out2):
            if value < 0:
                continue
            kind = ir.types[value]
            slot = Slot(kind.rows, kind.width)
            if _in_place(node):
                slot_of[value] = slot_of[node.ins["x"]]
            elif free.get(slot):
                slot_of[value] = free[slot].pop()
            else:
                slot_of[value] = len(slots)
                slots.append(slot)
        # freed only now, so that this op's outputs did not take its inputs' slots
        kept = {node.ins["x"]} if _in_place(node) else set()
        for value in {*node.ins.values(), node.out, node.out2} - {-1} - kept:
            if last.get(value, i) == i:
                kind = ir.types[value]
                free.setdefault(Slot(kind.rows, kind.width), []).append(slot_of[value])
    return slots, slot_of


def _in_place(node: Node) -> bool:
    return node.kind is OpKind.NORM and node.uints.get("columns", 0) > 0
