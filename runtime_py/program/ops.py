"""The vocabulary of a program: ops, tensor formats, and the fields of each op.

This table is the single source of the wire numbers. ``wasm/include/program.h``
and ``workers/src/program/ops.js`` mirror it, and ``tests/program/test_mirrors.py``
keeps the three equal. An op is added by adding a row here, a kernel family, a
line of the reference executor and rows in ``tests/ops``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

BLOCK = 32
"""Columns that share one scale (and min) in the block formats."""

KV_BLOCK = 32
"""Tokens in one block of the paged key-value cache."""

MAX_INS, MAX_TENSORS, MAX_UINTS, MAX_FLOATS = 4, 6, 10, 4


class Rows(IntEnum):
    """What one row of a slot stands for."""

    TOKENS = 0
    SEQS = 1
    PICKED = 2  # one row per wanted row of the step


class TensorFormat(IntEnum):
    """How a weight tensor is stored, host-neutral, in the safetensors shards.

    ``[N, K]`` is the logical shape, ``Kp`` is K rounded up to a multiple of 32.
    Parts are separate safetensors entries named after the tensor.
    """

    F32 = 0
    """``name``: f32, logical shape."""
    F16 = 1
    """``name``: f16, logical shape."""
    I8R = 2
    """``name``: i8 [N, K] in -127..127; ``name.scale``: f32 [N]. w = q * scale."""
    I8B32 = 3
    """``name``: u8 [N, Kp] in 0..127; ``name.scale``, ``name.min``: f16 [N, Kp/32].
    w = q * scale + min. Seven bits, so that the code fits the second operand of
    wasm's relaxed dot product, which engines only agree on in 0..127."""
    I4B32 = 4
    """``name``: u8 [N, Kp/2], byte i of a block's 16 holds code i in the low nibble
    and code i + 16 in the high one; ``name.scale``, ``name.min``: f16 [N, Kp/32]."""
    S8B32 = 5
    """``name``: i8 [N, Kp] in -128..127; ``name.scale``: f16 [N, Kp/32]. w = q * scale.
    Holds GGUF's Q8_0 exactly; costs two relaxed dots."""


class Activation(IntEnum):
    NONE = 0
    GELU = 1  # x * Phi(x), through erf
    GELU_TANH = 2
    QUICK_GELU = 3  # x * sigmoid(1.702 x)
    RELU = 4
    RELU_SQUARED = 5
    SILU = 6
    TANH = 7
    SIGMOID = 8
    MISH = 9
    ELU = 10
    LEAKY_RELU = 11  # slope 0.01
    SOFTPLUS = 12
    ABS = 13
    SQRT = 14
    EXP = 15
    NEG = 16
    HARD_SWISH = 17


class NormMode(IntEnum):
    LAYER = 0
    RMS = 1


class BinaryOp(IntEnum):
    ADD = 0
    SUB = 1
    MUL = 2
    DIV = 3


class PoolMode(IntEnum):
    MEAN = 0
    CLS = 1
    MAX = 2
    LAST = 3
    MEAN_SQRT_LEN = 4
    WEIGHTED_MEAN = 5  # token i of its sequence weighs i + 1; skipped tokens keep their number


class OpKind(IntEnum):
    EMBED = 1
    NORM = 2
    LINEAR = 3
    GLU = 4
    ROPE = 5
    ATTENTION = 6
    POOL = 7
    NORMALIZE = 8
    UNARY = 9
    BINARY = 10
    CACHE = 11
    ROWS = 12


FLAG_CAUSAL = 1  # ATTENTION: query i sees keys 0..i only
FLAG_INTERLEAVED = 1  # ROPE: pairs are (0,1),(2,3)...; otherwise (i, i + rotary_dim/2)
FLAG_UP_FIRST = 1  # GLU with one input: the first half is `up`, the second `gate`
FLAG_SWAP = 1  # BINARY with a constant: constant OP x instead of x OP constant


@dataclass(frozen=True, slots=True)
class OpSpec:
    """The named fields of one op kind, in wire order. A leading ``?`` marks optional."""

    ins: tuple[str, ...]
    tensors: tuple[str, ...] = ()
    uints: tuple[str, ...] = ()
    floats: tuple[str, ...] = ()
    flags: int = 0


OP_SPECS: dict[OpKind, OpSpec] = {
    # out[t] = scale * table[id[t]] + positions[pos[t] + position_offset] + constant
    OpKind.EMBED: OpSpec(
        (), ("table", "?positions", "?constant"), ("position_offset",), ("scale",)
    ),
    # s = x + residual (s is also written to out2 where there is one);
    # out = norm(s over groups of `group` columns, 0 = the whole row) * gamma + beta;
    # columns > 0: only columns offset .. offset + columns, in place (x is out)
    OpKind.NORM: OpSpec(
        ("x", "?residual"),
        ("?gamma", "?beta"),
        ("mode", "group", "offset", "columns"),
        ("eps",),
    ),
    # out = activation(x[:, x_offset : x_offset + K] @ weight.T + bias) + residual;
    # block formats quantize x to activation_bits (8, or 16; 0 means 8)
    OpKind.LINEAR: OpSpec(
        ("x", "?residual"), ("weight", "?bias"), ("activation", "x_offset", "activation_bits")
    ),
    # out = activation(gate) * up; one input of width 2F holds [gate | up], or two inputs of F
    OpKind.GLU: OpSpec(("gate", "?up"), (), ("activation",), (), FLAG_UP_FIRST),
    # rotates `heads` heads of head_dim columns from column `offset` on; other columns copy.
    # angle = position * inv_freq[i]; both cos and sin are multiplied by `scale`
    OpKind.ROPE: OpSpec(
        ("x",),
        ("inv_freq",),
        ("heads", "head_dim", "rotary_dim", "offset"),
        ("scale",),
        FLAG_INTERLEAVED,
    ),
    # softmax(scale * q.k + bias[h, key - query + (R - 1)]) v, bias f32 [heads, 2R - 1];
    # softcap 0 = none, else s -> softcap * tanh(s / softcap); window 0 = unlimited,
    # else keys with |query - key| < window are seen. cache 0: the keys of this step, from
    # k and v; cache L + 1: all keys of the sequence, from layer L of the paged cache
    OpKind.ATTENTION: OpSpec(
        ("q", "?k", "?v"),
        ("?bias",),
        (
            "heads",
            "kv_heads",
            "head_dim",
            "q_offset",
            "k_offset",
            "v_offset",
            "window",
            "cache",
        ),
        ("scale", "softcap"),
        FLAG_CAUSAL,
    ),
    # TOKENS -> SEQS, over each sequence's tokens after its first pool_skip; writes
    # columns out_offset .. out_offset + width(x) of out
    OpKind.POOL: OpSpec(("x",), (), ("mode", "out_offset")),
    # out = x / max(||x||_2, eps)
    OpKind.NORMALIZE: OpSpec(("x",), (), (), ("eps",)),
    # out = activation(alpha * x)
    OpKind.UNARY: OpSpec(("x",), (), ("activation",), ("alpha",)),
    # out = a OP b; b is a slot, or the f32 row (or scalar) `constant` for every row
    OpKind.BINARY: OpSpec(("a", "?b"), ("?constant",), ("op",), (), FLAG_SWAP),
    # writes the step's keys and values to layer `layer` of the paged cache; has no out
    OpKind.CACHE: OpSpec(("k", "v"), (), ("layer", "kv_heads", "head_dim", "k_offset", "v_offset")),
    # TOKENS -> PICKED: the wanted rows of the step
    OpKind.ROWS: OpSpec(("x",)),
}
