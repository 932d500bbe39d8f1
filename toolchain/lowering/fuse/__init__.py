"""Rewrites that leave fewer, larger ops; each keeps the values that others read."""

from toolchain.lowering.fuse.dead import remove_dead
from toolchain.lowering.fuse.equal import merge_equal
from toolchain.lowering.fuse.gate import fuse_gates
from toolchain.lowering.fuse.linear import fuse_linear
from toolchain.lowering.fuse.norm import fuse_norm_affine, fuse_norm_residual
from toolchain.lowering.fuse.qkv import fuse_qkv
from toolchain.lowering.fuse.rope import fuse_ropes
from toolchain.lowering.ir import Ir

__all__ = ["fuse"]


def fuse(ir: Ir, *, keep_rows: bool = False) -> None:
    """Apply every rewrite, in the order that lets each see the others' results.

    Args:
        keep_rows: do not move factors into the rows of linear layers.
    """
    remove_dead(ir)
    merge_equal(ir)
    fuse_norm_affine(ir)
    fuse_linear(ir, keep_rows=keep_rows)
    remove_dead(ir)
    fuse_qkv(ir)
    fuse_gates(ir)
    fuse_ropes(ir)
    remove_dead(ir)
    fuse_norm_residual(ir)
    remove_dead(ir)
