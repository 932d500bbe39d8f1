"""LINEAR: formats, odd sizes, fused bias, activation and residual."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from runtime_py.program import Activation, OpKind, PoolMode, TensorFormat
from tests.ops.cases.builder import Builder, Case, case, normal
from tests.ops.cases.elementwise import TORCH
from tests.ops.cases.formats import Parts, block_linear, pack_codes, store, values_of

F = TensorFormat
Kind = tuple[F, int]
"""Weights' format, and ``activation_bits``."""

KINDS: tuple[Kind, ...] = tuple((f, 0) for f in (F.F32, F.F16, F.I8B32, F.I4B32))
GENERATION_KINDS: tuple[Kind, ...] = (
    (F.S8B32, 8),
    (F.S8B32, 16),
    (F.I8B32, 16),
    (F.I4B32, 16),
)

SIZES = (  # tokens, K, N
    (1, 32, 8),
    (3, 33, 7),
    (5, 31, 1),
    (4, 1, 9),
    (17, 100, 20),
    (13, 64, 13),
    (67, 384, 40),
    (2, 1536, 12),
    (300, 64, 24),
)


def label(kind: Kind) -> str:
    fmt, bits = kind
    return fmt.name.lower() + "-x16" * (bits == 16)


def product(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32], kind: Kind) -> np.ndarray:
    fmt, bits = kind
    parts = store(w, fmt)
    if fmt in (F.I8B32, F.I4B32, F.S8B32):
        return block_linear(x, parts, fmt, bits or 8)
    return x.astype(np.float64) @ values_of(parts, fmt, w.shape[1]).T


def weight(seed: int, n: int, k: int) -> npt.NDArray[np.float32]:
    return normal(seed, n, k) / np.float32(np.sqrt(k))


def sizes(kinds: Sequence[Kind]) -> Iterator[Case]:
    for kind in kinds:
        for i, (tokens, k, n) in enumerate(SIZES):
            x, w = normal(10 + i, tokens, k), weight(20 + i, n, k)
            b = Builder(tokens)
            out = b.add(
                OpKind.LINEAR,
                b.tokens(n),
                x=b.input(x),
                weight=b.tensor(w, kind[0]),
                activation_bits=kind[1],
            )
            yield case(
                f"linear-{label(kind)}-{tokens}x{k}x{n}",
                b,
                out,
                [tokens],
                lambda x=x, w=w, kind=kind: product(x, w, kind),
            )


def fused(kinds: Sequence[Kind]) -> Iterator[Case]:
    tokens, k, n = 11, 72, 44
    x, w, bias, residual = normal(1, tokens, k), weight(2, n, k), normal(3, n), normal(4, tokens, n)
    for kind in kinds:
        fmt, bits = kind
        b = Builder(tokens)
        r = b.input(residual)
        b.add(
            OpKind.LINEAR,
            r,  # written in place over the residual
            x=b.input(x),
            residual=r,
            weight=b.tensor(w, fmt),
            activation_bits=bits,
            bias=b.tensor(bias),
            activation=Activation.GELU,
        )
        yield case(
            f"linear-{label(kind)}-bias-gelu-residual-in-place",
            b,
            r,
            [4, 7],
            lambda kind=kind: TORCH[Activation.GELU](product(x, w, kind) + bias) + residual,
        )
        for offset in (64, 5):
            b = Builder(tokens)
            wide = b.input(np.hstack([normal(5, tokens, offset), x, normal(6, tokens, 3)]))
            out = b.add(
                OpKind.LINEAR,
                b.tokens(n),
                x=wide,
                x_offset=offset,
                weight=b.tensor(w, fmt),
                activation_bits=bits,
                residual=b.input(residual),
            )
            yield case(
                f"linear-{label(kind)}-x_offset{offset}",
                b,
                out,
                [tokens],
                lambda kind=kind: product(x, w, kind) + residual,
            )
        b = Builder(tokens)
        pooled = b.add(OpKind.POOL, b.seqs(k), x=b.input(x), mode=PoolMode.CLS)
        out = b.add(
            OpKind.LINEAR,
            b.seqs(n),
            x=pooled,
            weight=b.tensor(w, fmt),
            activation_bits=bits,
            bias=b.tensor(bias),
            activation=Activation.TANH,
        )
        yield case(
            f"linear-{label(kind)}-seqs-tanh",
            b,
            out,
            [2, 1, 8],
            lambda kind=kind: np.tanh(product(x[[0, 2, 3]], w, kind) + bias),
        )


def activations() -> Iterator[Case]:
    tokens, k, n = 6, 40, 24
    x, w = normal(7, tokens, k) * 3, weight(8, n, k)
    for fmt in (F.F32, F.I8B32, F.I4B32):
        for kind in Activation:
            positive = kind is Activation.SQRT
            xs, ws = (np.abs(x), np.abs(w)) if positive else (x, w)
            b = Builder(tokens)
            out = b.add(
                OpKind.LINEAR,
                b.tokens(n),
                x=b.input(xs),
                weight=b.tensor(ws, fmt),
                activation=kind,
            )
            yield case(
                f"linear-{fmt.name}-{kind.name}".lower().replace("_", "-"),
                b,
                out,
                [tokens],
                lambda xs=xs, ws=ws, fmt=fmt, kind=kind: TORCH[kind](product(xs, ws, (fmt, 0))),
            )


def extremes(kinds: Sequence[Kind]) -> Iterator[Case]:
    """Codes and activations at the ends of their ranges; blocks of zeros; outliers."""
    ends = {F.I8B32: (0, 127), F.I4B32: (0, 15), F.S8B32: (-128, 127)}
    for fmt, bits in kinds:
        if fmt not in ends:
            continue
        least, most = ends[fmt]
        codes = np.random.default_rng(9).choice([least, least + 1, most - 1, most], (16, 3, 32))
        codes[0], codes[1] = most, least
        scale = np.full((16, 3), 0.01, np.float16)
        scale[2] = 0
        low = np.linspace(-1, 1, 48).reshape(16, 3).astype(np.float16)
        if fmt is F.S8B32:
            parts: Parts = (codes.astype(np.int8).reshape(16, -1), scale)
        else:
            parts = (pack_codes(codes.astype(np.uint8), fmt), scale, low)
        x = np.random.default_rng(10).choice([-1.0, 1.0], (5, 96)).astype(np.float32)
        x[0], x[1], x[2, :32], x[3, 40] = 1, -1, 0, 60
        x[4] = 0
        b = Builder(5)
        w = b.tensor(values_of(parts, fmt, 96), fmt)
        b.parts.update(zip(b.tensors[w].parts, parts, strict=True))
        out = b.add(OpKind.LINEAR, b.tokens(16), x=b.input(x), weight=w, activation_bits=bits)
        yield case(
            f"linear-{label((fmt, bits))}-extremes",
            b,
            out,
            [5],
            lambda x=x, parts=parts, fmt=fmt, bits=bits: block_linear(x, parts, fmt, bits or 8),
            atol=1e-4,
        )


def rounding(kinds: Sequence[Kind]) -> Iterator[Case]:
    """Activation codes that lie on halves round to even."""
    for fmt, bits in kinds:
        if fmt not in (F.I8B32, F.S8B32):
            continue
        top = 127 if bits != 16 else 32639
        x = np.zeros((2, 32), np.float32)
        x[0, :9] = [top, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, top - 0.5, 0.5 - top]
        x[1, :4] = [-top, 63.5, 64.5, 65.5]
        w = torch.eye(32).numpy()[:9]
        b = Builder(2)
        out = b.add(
            OpKind.LINEAR,
            b.tokens(9),
            x=b.input(x),
            weight=b.tensor(w, fmt),
            activation_bits=bits,
        )
        even = np.rint(x[:, :9].astype(np.float64))
        unit = 127 * float(np.float16(1 / 127))
        yield case(
            f"linear-{label((fmt, bits))}-half-to-even",
            b,
            out,
            [2],
            lambda even=even, unit=unit: even * unit,
            atol=1e-4,
        )


def cases() -> Iterator[Case]:
    yield from sizes(KINDS)
    yield from fused(KINDS)
    yield from activations()
    yield from extremes(KINDS)
    yield from rounding([(F.I8B32, 0)])


def generation_cases() -> Iterator[Case]:
    yield from sizes(GENERATION_KINDS)
    yield from fused(GENERATION_KINDS)
    yield from extremes(GENERATION_KINDS)
    yield from rounding(GENERATION_KINDS)
