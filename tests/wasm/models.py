"""Small programs with random weights."""

from __future__ import annotations

import numpy as np

from runtime_py.executors.weights import row_bytes
from runtime_py.program import (
    Activation,
    BinaryOp,
    NormMode,
    Op,
    OpKind,
    PoolMode,
    Program,
    Rows,
    Slot,
    Tensor,
    TensorFormat,
    validate,
)

F32 = TensorFormat.F32


def linear(format: TensorFormat, k: int, n: int, vocab: int, bits: int = 0) -> Program:
    """Rows of an f32 table through one linear layer; ``bits`` are those of activations."""
    return validate(
        Program(
            slots=(Slot(Rows.TOKENS, k), Slot(Rows.TOKENS, n)),
            tensors=(Tensor("table", F32, (vocab, k)), Tensor("w", format, (n, k))),
            ops=(
                Op(OpKind.EMBED, 0, (), (0, -1, -1), (0,), (1.0,)),
                Op(OpKind.LINEAR, 1, (0, -1), (1, -1), (Activation.NONE, 0, bits)),
            ),
            output_slot=1,
            vocab_size=vocab,
            max_positions=0,
        )
    )


def unary(activation: Activation, width: int, vocab: int) -> Program:
    """Rows of an f32 table through one activation."""
    return validate(
        Program(
            slots=(Slot(Rows.TOKENS, width),),
            tensors=(Tensor("table", F32, (vocab, width)),),
            ops=(
                Op(OpKind.EMBED, 0, (), (0, -1, -1), (0,), (1.0,)),
                Op(OpKind.UNARY, 0, (0,), (), (activation,), (1.0,)),
            ),
            output_slot=0,
            vocab_size=vocab,
            max_positions=0,
        )
    )


def everything(format: TensorFormat = TensorFormat.I8B32) -> Program:
    """Every op kind once, at widths that leave partial vectors, panels and blocks."""
    width, heads, dim, wide = 36, 3, 12, 44
    slots = (
        *(Slot(Rows.TOKENS, w) for w in (width, 3 * width, width, wide, wide // 2)),
        Slot(Rows.SEQS, width + 4),
    )
    tensors = (
        Tensor("table", TensorFormat.I8R, (50, width)),
        Tensor("positions", TensorFormat.F16, (70, width)),
        Tensor("gamma", F32, (width,)),
        Tensor("beta", F32, (width,)),
        Tensor("qkv", format, (3 * width, width)),
        Tensor("qkv.bias", F32, (3 * width,)),
        Tensor("frequencies", F32, (dim // 2,)),
        Tensor("distances", F32, (heads, 127)),
        Tensor("up", format, (wide, width)),
        Tensor("down", TensorFormat.F16, (width, wide // 2)),
        Tensor("constant", F32, (1,)),
        Tensor("row", F32, (4,)),
    )
    head = (heads, heads, dim, 0, width, 2 * width, 0)
    ops = (
        Op(OpKind.EMBED, 0, (), (0, 1, 2), (2,), (1.5,)),
        Op(OpKind.NORM, 2, (0, -1), (2, 3), (NormMode.LAYER, 0), (1e-12,), 0, 0),
        Op(OpKind.LINEAR, 1, (2, -1), (4, 5), (Activation.NONE, 0)),
        Op(OpKind.ROPE, 1, (1,), (6,), (2 * heads, dim, dim, 0), (1.0,)),
        Op(OpKind.ATTENTION, 2, (1, 1, 1), (7,), head, (0.3, 20.0), 1),
        Op(OpKind.LINEAR, 3, (2, -1), (8, -1), (Activation.GELU, 0)),
        Op(OpKind.GLU, 4, (3, -1), (), (Activation.SILU,), (), 1),
        Op(OpKind.LINEAR, 0, (4, 0), (9, -1), (Activation.NONE, 0)),
        Op(OpKind.UNARY, 0, (0,), (), (Activation.TANH,), (0.7,)),
        Op(OpKind.BINARY, 0, (0, -1), (10,), (BinaryOp.SUB,), (), 1),
        Op(OpKind.BINARY, 0, (0, 2), (-1,), (BinaryOp.ADD,)),
        Op(OpKind.POOL, 5, (0,), (), (PoolMode.MEAN, 4)),
        Op(OpKind.NORMALIZE, 5, (5,), (), (), (1e-12,)),
    )
    return validate(Program(slots, tensors, ops, 5, 50, 64))


def decoder(
    format: TensorFormat = TensorFormat.I4B32,
    *,
    bits: int = 0,
    window: int = 0,
    positions: int = 160,
    vocab: int = 77,
) -> Program:
    """Two layers of a language model: grouped heads, q/k norm, one table for both ends."""
    width, heads, kv, dim, wide = 40, 6, 2, 12, 56
    q, k = heads * dim, kv * dim
    qkv = q + 2 * k
    slots = (
        *(Slot(Rows.TOKENS, w) for w in (width, qkv, q, width, wide, wide // 2)),
        Slot(Rows.PICKED, width),
        Slot(Rows.PICKED, vocab),
    )
    tensors = [
        Tensor("table", TensorFormat.S8B32, (vocab, width)),
        Tensor("frequencies", F32, (dim // 2,)),
        Tensor("head_norm", F32, (dim,)),
    ]
    ops = [Op(OpKind.EMBED, 0, (), (0, -1, -1), (0,), (1.5,))]
    for layer in range(2):
        at = len(tensors)
        tensors += [
            Tensor(f"gamma{layer}", F32, (width,)),
            Tensor(f"qkv{layer}", format, (qkv, width)),
            Tensor(f"out{layer}", format, (width, q)),
            Tensor(f"up{layer}", format, (wide, width)),
            Tensor(f"down{layer}", format, (width, wide // 2)),
        ]
        plain = (Activation.NONE, 0, bits)
        shape = (heads, kv, dim, 0, 0, 0, window, layer + 1)
        ops += [
            Op(OpKind.NORM, 3, (0, -1), (at, -1), (NormMode.RMS,), (1e-6,)),
            Op(OpKind.LINEAR, 1, (3, -1), (at + 1, -1), plain),
            Op(OpKind.NORM, 1, (1, -1), (2, -1), (NormMode.RMS, dim, 0, q + k), (1e-6,)),
            Op(OpKind.ROPE, 1, (1,), (1,), (heads + kv, dim, dim, 0), (1.0,)),
            Op(OpKind.CACHE, -1, (1, 1), (), (layer, kv, dim, q, q + k)),
            Op(OpKind.ATTENTION, 2, (1, -1, -1), (-1,), shape, (0.3, 30.0), 1),
            Op(OpKind.LINEAR, 0, (2, 0), (at + 2, -1), plain),
            Op(OpKind.LINEAR, 4, (0, -1), (at + 3, -1), plain),
            Op(OpKind.GLU, 5, (4, -1), (), (Activation.SILU,)),
            Op(OpKind.LINEAR, 0, (5, 0), (at + 4, -1), (Activation.NONE, 0)),
        ]
    ops += [
        Op(OpKind.ROWS, 6, (0,)),
        Op(OpKind.NORM, 6, (6, -1), (-1, -1), (NormMode.RMS,), (1e-6,)),
        Op(OpKind.LINEAR, 7, (6, -1), (0, -1), (Activation.NONE, 0, bits)),
    ]
    return validate(Program(slots, tuple(tensors), tuple(ops), 7, vocab, positions))


def cache_only(vocab: int) -> Program:
    """One head over the cache: the table's rows are [q and k | v].

    A sequence of one token gives its own v, as the cache holds it.
    """
    dim, width = vocab, 2 * vocab
    slots = (Slot(Rows.TOKENS, width), Slot(Rows.TOKENS, dim), Slot(Rows.PICKED, vocab))
    shape = (1, 1, dim, 0, 0, 0, 0, 1)
    ops = (
        Op(OpKind.EMBED, 0, (), (0, -1, -1), (0,), (1.0,)),
        Op(OpKind.CACHE, -1, (0, 0), (), (0, 1, dim, 0, dim)),
        Op(OpKind.ATTENTION, 1, (0, -1, -1), (-1,), shape, (0.0, 0.0), 1),
        Op(OpKind.ROWS, 2, (1,)),
    )
    return validate(Program(slots, (Tensor("table", F32, (vocab, width)),), ops, 2, vocab, 0))


def random_parts(program: Program, seed: int = 0) -> dict[str, bytes]:
    """Stored bytes of every part, with codes over their whole range."""
    rng = np.random.default_rng(seed)
    parts = {}
    for tensor in program.tensors:
        for part, (name, size) in enumerate(zip(tensor.parts, row_bytes(tensor), strict=True)):
            parts[name] = _part(rng, tensor.format, part, size * tensor.shape[0])
    return parts


def _part(rng: np.random.Generator, format: TensorFormat, part: int, size: int) -> bytes:
    if part == 0 and format is TensorFormat.S8B32:
        return rng.integers(-128, 128, size).astype(np.int8).tobytes()
    if part == 0 and format is TensorFormat.I8R:
        return rng.integers(-127, 128, size).astype(np.int8).tobytes()
    if part == 0 and format in (TensorFormat.I8B32, TensorFormat.I4B32):
        high = 128 if format is TensorFormat.I8B32 else 256
        return rng.integers(0, high, size).astype(np.uint8).tobytes()
    wide = format is F32 or (format is TensorFormat.I8R and part == 1)
    dtype, item = ("<f4", 4) if wide else ("<f2", 2)
    low, high_value = (0.001, 0.01) if part == 1 else (-0.6, 0.6)
    return rng.uniform(low, high_value, size // item).astype(dtype).tobytes()
