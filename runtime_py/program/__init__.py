"""The program: one lowering of a model that every backend executes (docs/design.md, 3.1)."""

from runtime_py.program.format import Op, Program, Slot, Tensor
from runtime_py.program.ops import (
    BLOCK,
    FLAG_CAUSAL,
    FLAG_INTERLEAVED,
    FLAG_SWAP,
    FLAG_UP_FIRST,
    KV_BLOCK,
    OP_SPECS,
    Activation,
    BinaryOp,
    NormMode,
    OpKind,
    PoolMode,
    Rows,
    TensorFormat,
)
from runtime_py.program.validate import validate

__all__ = [
    "BLOCK",
    "FLAG_CAUSAL",
    "FLAG_INTERLEAVED",
    "FLAG_SWAP",
    "FLAG_UP_FIRST",
    "KV_BLOCK",
    "OP_SPECS",
    "Activation",
    "BinaryOp",
    "NormMode",
    "Op",
    "OpKind",
    "PoolMode",
    "Program",
    "Rows",
    "Slot",
    "Tensor",
    "TensorFormat",
    "validate",
]
