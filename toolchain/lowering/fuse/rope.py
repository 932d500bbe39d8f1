"""Rotary embeddings of queries and keys that lie side by side become one op."""

from __future__ import annotations

import numpy as np

from runtime_py.program import OpKind
from toolchain.lowering.ir import Ir, Node

_SAME = ("head_dim", "rotary_dim")


def fuse_ropes(ir: Ir) -> None:
    """Chain the two rotations of one packed value, then merge them if they adjoin."""
    for attention in [n for n in ir.nodes if n.kind is OpKind.ATTENTION]:
        _chain(ir, attention)
        _merge(ir, attention)


def _rope_of(ir: Ir, value: int) -> Node | None:
    made = ir.producer(value)
    return made if made.kind is OpKind.ROPE else None


def _chain(ir: Ir, attention: Node) -> None:
    """q and k rotated apart, from the same packed value: let k's rotation follow q's."""
    q, k = (_rope_of(ir, attention.ins[n]) for n in ("q", "k"))
    if q is None or k is None or q is k or q.ins["x"] != k.ins["x"]:
        return
    source = q.ins["x"]
    uses = ir.uses()
    if uses[q.out] != [attention] or uses[k.out] != [attention]:
        return
    first, second = sorted((q, k), key=ir.nodes.index)
    second.ins["x"] = first.out
    for name in ("q", "k", "v"):
        # neither rotation touches the other's columns, nor the values'
        if attention.ins[name] in (first.out, source):
            attention.ins[name] = second.out


def _merge(ir: Ir, attention: Node) -> None:
    second = _rope_of(ir, attention.ins["q"])
    first = _rope_of(ir, second.ins["x"]) if second else None
    if first is None or second is None or ir.uses()[first.out] != [second]:
        return
    low, high = sorted((first, second), key=lambda n: n.uints["offset"])
    inv_freq = (first.tensors["inv_freq"].array, second.tensors["inv_freq"].array)
    if (
        first.flags != second.flags
        or first.floats != second.floats
        or any(first.uints[k] != second.uints[k] for k in _SAME)
        or not np.allclose(*inv_freq, rtol=1e-6, atol=0.0)
        or low.uints["offset"] + low.uints["heads"] * low.uints["head_dim"] != high.uints["offset"]
    ):
        return
    second.ins["x"] = first.ins["x"]
    second.uints["offset"] = low.uints["offset"]
    second.uints["heads"] = low.uints["heads"] + high.uints["heads"]
    ir.nodes.remove(first)
