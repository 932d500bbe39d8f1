"""A small language model in any weight format, for tests of whole steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.program import FLAG_CAUSAL, Activation, NormMode, OpKind, Program, TensorFormat
from tests.ops.cases.builder import Builder, normal

VOCAB, POSITIONS, WIDTH, HEADS, KV_HEADS, DIM, FFN = 101, 400, 48, 4, 2, 12, 80


def decoder(
    fmt: TensorFormat, bits: int = 0, layers: int = 2, window: int = 0
) -> tuple[Program, dict[str, npt.NDArray[Any]]]:
    """Program and parts of a Qwen3-like decoder with random weights.

    Grouped queries, norms on the heads of queries and keys, rope, a gated MLP, a head
    tied to the embedding.

    Args:
        bits: ``activation_bits`` of every linear op; 0 for weights that are not blocks.
        window: sliding window of every second layer.
    """
    b = Builder(VOCAB, max_positions=POSITIONS)
    seed = iter(range(1000))
    q_width, kv_width = HEADS * DIM, KV_HEADS * DIM
    packed = q_width + 2 * kv_width
    inv_freq = b.tensor((1e4 ** (-np.arange(DIM // 2) * 2 / DIM)).astype(np.float32))

    def dense(out: int, x: int, k: int, n: int, **fields: float) -> int:
        weight = b.tensor(normal(next(seed), n, k) / np.float32(np.sqrt(k)), fmt)
        return b.add(OpKind.LINEAR, out, x=x, weight=weight, activation_bits=bits, **fields)

    def norm(out: int, x: int, width: int = WIDTH, **fields: float) -> int:
        gamma = b.tensor(1 + normal(next(seed), width) / 10)
        return b.add(OpKind.NORM, out, x=x, gamma=gamma, mode=NormMode.RMS, eps=1e-6, **fields)

    x, normed, mixed = b.tokens(WIDTH), b.tokens(WIDTH), b.tokens(q_width)
    qkv, wide, gated = b.tokens(packed), b.tokens(2 * FFN), b.tokens(FFN)
    # small, so that the layers say more than the last token, and many tokens are likely
    table = b.tensor(normal(next(seed), VOCAB, WIDTH) / 4, fmt)
    b.add(OpKind.EMBED, x, table=table, scale=1.0)
    for layer in range(layers):
        dense(qkv, norm(normed, x), WIDTH, packed)
        norm(qkv, qkv, DIM, group=DIM, columns=q_width)
        norm(qkv, qkv, DIM, group=DIM, offset=q_width, columns=kv_width)
        for heads, offset in ((HEADS, 0), (KV_HEADS, q_width)):
            b.add(
                OpKind.ROPE,
                qkv,
                x=qkv,
                inv_freq=inv_freq,
                heads=heads,
                head_dim=DIM,
                rotary_dim=DIM,
                offset=offset,
                scale=1.0,
            )
        sizes = {"kv_heads": KV_HEADS, "head_dim": DIM}
        at = {"k_offset": q_width, "v_offset": q_width + kv_width}
        b.add(OpKind.CACHE, -1, k=qkv, v=qkv, layer=layer, **at, **sizes)
        b.add(
            OpKind.ATTENTION,
            mixed,
            flags=FLAG_CAUSAL,
            q=qkv,
            heads=HEADS,
            cache=layer + 1,
            window=window * (layer % 2),
            scale=DIM**-0.5,
            **sizes,
        )
        dense(x, mixed, q_width, WIDTH, residual=x)
        dense(wide, norm(normed, x), WIDTH, 2 * FFN)
        b.add(OpKind.GLU, gated, gate=wide, activation=Activation.SILU)
        dense(x, gated, FFN, WIDTH, residual=x)
    last = b.add(OpKind.ROWS, b.picked(WIDTH), x=x)
    norm(last, last)
    out = b.add(OpKind.LINEAR, b.picked(VOCAB), x=last, weight=table, activation_bits=bits)
    return b.program(out), b.parts
