"""Norms take their gamma and beta, and the residual sum before them."""

from __future__ import annotations

import numpy as np

from runtime_py.program import BinaryOp, OpKind
from toolchain.lowering.fuse.match import only_use, whole_constant
from toolchain.lowering.ir import Array, Ir, Weight


def fuse_norm_affine(ir: Ir) -> None:
    """NORM, then ``* row`` and ``+ row``: the norm's own gamma and beta."""
    for node in list(ir.nodes):
        if node.kind is not OpKind.NORM:
            continue
        while True:
            user = only_use(ir, node.out)
            row = whole_constant(user, BinaryOp.MUL, BinaryOp.ADD) if user else None
            if user is None or row is None:
                break
            group = node.uints.get("group") or ir.width(node.out)
            part = _per_group(row.array, group, ir.width(node.out))
            is_mul = user.uints["op"] == BinaryOp.MUL
            if part is None or "beta" in node.tensors or (is_mul and "gamma" in node.tensors):
                break
            node.tensors["gamma" if is_mul else "beta"] = Weight(part, row.hint)
            ir.nodes.remove(user)
            ir.replace(user.out, node.out)


def _per_group(row: Array, group: int, width: int) -> Array | None:
    """``row`` as one group's numbers, if all groups have the same."""
    parts = np.broadcast_to(row, (width,)).reshape(-1, group)
    return parts[0] if np.array_equal(parts, np.broadcast_to(parts[:1], parts.shape)) else None


def fuse_norm_residual(ir: Ir) -> None:
    """NORM of a sum: the norm adds; the sum itself, where others read it, is its out2."""
    for node in list(ir.nodes):
        if node.kind is not OpKind.NORM or "residual" in node.ins:
            continue
        total = ir.producer(node.ins["x"])
        if (
            total.kind is not OpKind.BINARY
            or total.uints["op"] != BinaryOp.ADD
            or "b" not in total.ins
        ):
            continue
        readers = ir.uses()[total.out]
        if readers[0] is not node:
            continue  # somebody reads the sum before the norm runs
        if len(readers) > 1 or ir.output == total.out:
            node.out2 = total.out
        ir.nodes.remove(total)
        node.ins = {"x": total.ins["a"], "residual": total.ins["b"]}
