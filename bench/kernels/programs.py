"""Programs with random weights, for timing only: one linear layer, and a whole encoder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from runtime_py.executors.weights import row_bytes
from runtime_py.program import (
    FLAG_CAUSAL,
    KV_BLOCK,
    Activation,
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


@dataclass
class Builder:
    """Collects slots, tensors and ops; makes up the weights."""

    vocab_size: int
    slots: list[Slot] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def slot(self, width: int, rows: Rows = Rows.TOKENS) -> int:
        self.slots.append(Slot(rows, width))
        return len(self.slots) - 1

    def tensor(self, *shape: int, format: TensorFormat = TensorFormat.F32) -> int:
        self.tensors.append(Tensor(f"t{len(self.tensors)}", format, shape))
        return len(self.tensors) - 1

    def linear(
        self,
        x: int,
        out: int,
        format: TensorFormat,
        activation: Activation = Activation.NONE,
        residual: int = -1,
    ) -> None:
        n, k = self.slots[out].width, self.slots[x].width
        weights = (self.tensor(n, k, format=format), self.tensor(n))
        self.ops.append(Op(OpKind.LINEAR, out, (x, residual), weights, (activation, 0)))

    def norm(self, x: int, out: int) -> None:
        width = self.slots[x].width
        affine = (self.tensor(width), self.tensor(width))
        self.ops.append(Op(OpKind.NORM, out, (x, -1), affine, (NormMode.LAYER, 0), (1e-12,)))

    def embed(self, out: int) -> None:
        table = self.tensor(self.vocab_size, self.slots[out].width, format=TensorFormat.I8R)
        self.ops.append(Op(OpKind.EMBED, out, (), (table, -1, -1), (0,), (1.0,)))

    def finish(self, output: int) -> Program:
        slots, tensors, ops = tuple(self.slots), tuple(self.tensors), tuple(self.ops)
        return validate(Program(slots, tensors, ops, output, self.vocab_size, 0))


def linear_program(n: int, k: int, format: TensorFormat) -> Program:
    """One linear layer [n, k] behind an embedding."""
    b = Builder(vocab_size=1000)
    x, y = b.slot(k), b.slot(n)
    b.embed(x)
    b.linear(x, y, format)
    return b.finish(y)


def encoder_program(format: TensorFormat, layers: int = 6, width: int = 384) -> Program:
    """The shape of all-MiniLM-L6-v2: 12 heads, a feed-forward part four times as wide."""
    b = Builder(vocab_size=1000)
    x, qkv, mid, wide = b.slot(width), b.slot(3 * width), b.slot(width), b.slot(4 * width)
    pooled = b.slot(width, Rows.SEQS)
    heads, dim = 12, width // 12
    b.embed(mid)
    b.norm(mid, x)
    for _ in range(layers):
        b.linear(x, qkv, format)
        shape = (heads, heads, dim, 0, width, 2 * width, 0)
        b.ops.append(Op(OpKind.ATTENTION, mid, (qkv,) * 3, (-1,), shape, (dim**-0.5, 0.0)))
        b.linear(mid, x, format, residual=x)
        b.norm(x, x)
        b.linear(x, wide, format, Activation.GELU)
        b.linear(wide, x, format, residual=x)
        b.norm(x, x)
    b.ops.append(Op(OpKind.POOL, pooled, (x,), (), (PoolMode.MEAN, 0)))
    b.ops.append(Op(OpKind.NORMALIZE, pooled, (pooled,), (), (), (1e-12,)))
    return b.finish(pooled)


@dataclass(frozen=True)
class Scenario:
    """A decoder's step: ``seqs`` sequences of ``tokens`` tokens after ``context`` others."""

    seqs: int
    tokens: int
    context: int
    steps: int

    @property
    def kv_blocks(self) -> int:
        return self.seqs * -(-(self.context + self.tokens) // KV_BLOCK)


def decoder_program(format: TensorFormat, bits: int, layers: int = 30) -> Program:
    """The shape of SmolLM2-135M: 9 heads over 3 of keys and values, tied 8-bit embedding."""
    width, heads, kv, dim, wide, vocab = 576, 9, 3, 64, 1536, 49152
    q, k = heads * dim, kv * dim
    b = Builder(vocab)
    x, normed, qkv, mixed = b.slot(width), b.slot(width), b.slot(q + 2 * k), b.slot(q)
    gate_up, gated = b.slot(2 * wide), b.slot(wide)
    last, logits = b.slot(width, Rows.PICKED), b.slot(vocab, Rows.PICKED)
    table = b.tensor(vocab, width, format=TensorFormat.S8B32)
    frequencies, gamma = b.tensor(dim // 2), b.tensor(width)

    def linear(x: int, out: int, residual: int = -1) -> None:
        weight = b.tensor(b.slots[out].width, b.slots[x].width, format=format)
        fields = (Activation.NONE, 0, bits)
        b.ops.append(Op(OpKind.LINEAR, out, (x, residual), (weight, -1), fields))

    def norm(x: int, out: int) -> None:
        b.ops.append(Op(OpKind.NORM, out, (x, -1), (gamma, -1), (NormMode.RMS,), (1e-5,)))

    b.ops.append(Op(OpKind.EMBED, x, (), (table, -1, -1), (0,), (1.0,)))
    for layer in range(layers):
        norm(x, normed)
        linear(normed, qkv)
        b.ops.append(
            Op(OpKind.ROPE, qkv, (qkv,), (frequencies,), (heads + kv, dim, dim, 0), (1.0,))
        )
        b.ops.append(Op(OpKind.CACHE, -1, (qkv, qkv), (), (layer, kv, dim, q, q + k)))
        shape = (heads, kv, dim, 0, 0, 0, 0, layer + 1)
        ins = (qkv, -1, -1)
        b.ops.append(Op(OpKind.ATTENTION, mixed, ins, (-1,), shape, (dim**-0.5, 0.0), FLAG_CAUSAL))
        linear(mixed, x, residual=x)
        norm(x, normed)
        linear(normed, gate_up)
        b.ops.append(Op(OpKind.GLU, gated, (gate_up, -1), (), (Activation.SILU,)))
        linear(gated, x, residual=x)
    b.ops.append(Op(OpKind.ROWS, last, (x,)))
    norm(last, last)
    fields = (Activation.NONE, 0, bits)
    b.ops.append(Op(OpKind.LINEAR, logits, (last, -1), (table, -1), fields))
    return b.finish(logits)


def linear_operations(program: Program, op: Op) -> int:
    """Multiplications and additions of a linear op per row."""
    n, k = program.tensors[op.tensor("weight")].shape
    return 2 * n * k


def write_model(
    program: Program,
    folder: Path,
    lengths: Sequence[int] = (),
    steps: int = 0,
    scenarios: Sequence[Scenario] = (),
) -> None:
    """Write ``program`` with made-up weights the way ``bench.mjs`` reads them.

    Args:
        lengths: an encoder's sequences.
        scenarios: a decoder's steps.
    """
    rng = np.random.default_rng(7)
    folder.mkdir(parents=True)
    (folder / "program.bin").write_bytes(program.encode())
    tensors = []
    for index, tensor in enumerate(program.tensors):
        names = []
        for part, size in enumerate(row_bytes(tensor)):
            names.append(f"{index}.{part}")
            data = _random_part(rng, tensor, part, size * tensor.shape[0])
            (folder / names[-1]).write_bytes(data)
        tensors.append({"rows": tensor.shape[0], "parts": names})
    info = {
        "tokens": sum(lengths),
        "lengths": list(lengths),
        "steps": steps,
        "scenarios": [asdict(s) for s in scenarios],
        "kv_blocks": max((s.kv_blocks for s in scenarios), default=0),
        "vocabulary": program.vocab_size,
        "ops": [op.kind.name for op in program.ops],
        "tensors": tensors,
    }
    (folder / "model.json").write_text(json.dumps(info))


def _random_part(rng: np.random.Generator, tensor: Tensor, part: int, size: int) -> bytes:
    """Bytes of one part; weights come out between about -0.1 and 0.1."""
    match tensor.format, part:
        case (TensorFormat.F32, _):
            return rng.uniform(-0.1, 0.1, size // 4).astype("<f4").tobytes()
        case (TensorFormat.F16, _):
            return rng.uniform(-0.1, 0.1, size // 2).astype("<f2").tobytes()
        case (TensorFormat.I8R, 0):
            return rng.integers(-127, 128, size).astype(np.int8).tobytes()
        case (TensorFormat.I8R, _):
            return np.full(size // 4, 0.01, "<f4").tobytes()
        case (TensorFormat.S8B32, 0):
            return rng.integers(-128, 128, size).astype(np.int8).tobytes()
        case (TensorFormat.S8B32, _):
            return np.full(size // 2, 0.1 / 127, "<f2").tobytes()
        case (_, 0):
            high = 128 if tensor.format is TensorFormat.I8B32 else 256
            return rng.integers(0, high, size).astype(np.uint8).tobytes()
        case (_, 1):
            levels = 127 if tensor.format is TensorFormat.I8B32 else 15
            return np.full(size // 2, 0.2 / levels, "<f2").tobytes()
        case _:
            return np.full(size // 2, -0.1, "<f2").tobytes()
