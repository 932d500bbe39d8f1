"""Rewrites that leave fewer, larger ops; each keeps the values that others read."""

from toolchain.lowering.fuse.dead import remove_dead
from toolchain.lowering.fuse.linear import fuse_linear
from toolchain.lowering.fuse.norm import fuse_norm_affine, fuse_norm_residual
from toolchain.lowering.fuse.qkv import fuse_qkv
from toolchain.lowering.fuse.rope import fuse_ropes
from toolchain.lowering.ir import Ir

__all__ = ["fuse"]


def fuse(ir: Ir) -> None:
    """Apply every rewrite, in the order that lets each see the others' results."""
    remove_dead(ir)
    fuse_norm_affine(ir)
    fuse_linear(ir)
    remove_dead(ir)
    fuse_qkv(ir)
    fuse_ropes(ir)
    remove_dead(ir)
    fuse_norm_residual(ir)
    remove_dead(ir)
