"""A small transformer encoder in any weight format, for tests of whole steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import Activation, OpKind, PoolMode, Program, TensorFormat
from tests.ops.cases.builder import Builder, normal

VOCAB, POSITIONS, WIDTH, HEADS, FFN = 97, 320, 48, 3, 100


def encoder(
    fmt: TensorFormat, layers: int = 2, pool: PoolMode | None = PoolMode.MEAN
) -> tuple[Program, dict[str, npt.NDArray[Any]]]:
    """Program and parts of a BERT-like encoder with random weights.

    The output is one vector of `WIDTH` per sequence, or per token without ``pool``.
    """
    b = Builder(VOCAB, max_positions=POSITIONS)
    seed = iter(range(1000))
    table = TensorFormat.F32 if fmt is TensorFormat.F32 else TensorFormat.I8R

    def dense(out: int, x: int, k: int, n: int, **fields: float) -> int:
        weight = b.tensor(normal(next(seed), n, k) / np.float32(np.sqrt(k)), fmt)
        bias = b.tensor(normal(next(seed), n) / 10)
        return b.add(OpKind.LINEAR, out, x=x, weight=weight, bias=bias, **fields)

    def norm(out: int, x: int) -> int:
        gamma = b.tensor(1 + normal(next(seed), WIDTH) / 10)
        return b.add(OpKind.NORM, out, x=x, gamma=gamma, eps=1e-12)

    x, qkv, mixed, wide = (b.tokens(w) for w in (WIDTH, 3 * WIDTH, WIDTH, FFN))
    b.add(
        OpKind.EMBED,
        x,
        table=b.tensor(normal(next(seed), VOCAB, WIDTH), table),
        positions=b.tensor(normal(next(seed), POSITIONS, WIDTH) / 4, table),
        scale=1.0,
    )
    norm(x, x)
    for _ in range(layers):
        dense(qkv, x, WIDTH, 3 * WIDTH)
        b.add(
            OpKind.ATTENTION,
            mixed,
            q=qkv,
            k=qkv,
            v=qkv,
            heads=HEADS,
            kv_heads=HEADS,
            head_dim=WIDTH // HEADS,
            k_offset=WIDTH,
            v_offset=2 * WIDTH,
            scale=(WIDTH // HEADS) ** -0.5,
        )
        dense(x, mixed, WIDTH, WIDTH, residual=x)
        norm(x, x)
        dense(wide, x, WIDTH, FFN, activation=Activation.GELU)
        dense(x, wide, FFN, WIDTH, residual=x)
        norm(x, x)
    if pool is None:
        return b.program(x), b.parts
    out = b.add(OpKind.POOL, b.seqs(WIDTH), x=x, mode=pool)
    b.add(OpKind.NORMALIZE, out, x=out, eps=1e-12)
    return b.program(out), b.parts


def weights_of(program: Program, parts: dict[str, npt.NDArray[Any]]) -> MemoryWeights:
    return MemoryWeights(program, {n: memoryview(a).cast("B") for n, a in parts.items()})
