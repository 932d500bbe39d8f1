"""LINEAR: formats, odd sizes, fused bias, activation and residual."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from runtime_py.program import Activation, OpKind, PoolMode, TensorFormat
from tests.ops.cases.builder import Builder, Case, case, normal
from tests.ops.cases.elementwise import TORCH
from tests.ops.cases.formats import block_linear, pack_codes, store, values_of

F = TensorFormat
FORMATS = (F.F32, F.F16, F.I8B32, F.I4B32)

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


def product(x: npt.NDArray[np.float32], w: npt.NDArray[np.float32], fmt: F) -> np.ndarray:
    parts = store(w, fmt)
    if fmt in (F.I8B32, F.I4B32):
        return block_linear(x, parts, fmt)
    return x.astype(np.float64) @ values_of(parts, fmt, w.shape[1]).T


def weight(seed: int, n: int, k: int) -> npt.NDArray[np.float32]:
    return normal(seed, n, k) / np.float32(np.sqrt(k))


def sizes() -> Iterator[Case]:
    for fmt in FORMATS:
        for i, (tokens, k, n) in enumerate(SIZES):
            x, w = normal(10 + i, tokens, k), weight(20 + i, n, k)
            b = Builder(tokens)
            out = b.add(OpKind.LINEAR, b.tokens(n), x=b.input(x), weight=b.tensor(w, fmt))
            yield case(
                f"linear-{fmt.name}-{tokens}x{k}x{n}".lower(),
                b,
                out,
                [tokens],
                lambda x=x, w=w, fmt=fmt: product(x, w, fmt),
            )


def fused() -> Iterator[Case]:
    tokens, k, n = 11, 72, 44
    x, w, bias, residual = normal(1, tokens, k), weight(2, n, k), normal(3, n), normal(4, tokens, n)
    for fmt in FORMATS:
        b = Builder(tokens)
        r = b.input(residual)
        b.add(
            OpKind.LINEAR,
            r,  # written in place over the residual
            x=b.input(x),
            residual=r,
            weight=b.tensor(w, fmt),
            bias=b.tensor(bias),
            activation=Activation.GELU,
        )
        yield case(
            f"linear-{fmt.name}-bias-gelu-residual-in-place".lower(),
            b,
            r,
            [4, 7],
            lambda fmt=fmt: TORCH[Activation.GELU](product(x, w, fmt) + bias) + residual,
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
                residual=b.input(residual),
            )
            yield case(
                f"linear-{fmt.name}-x_offset{offset}".lower(),
                b,
                out,
                [tokens],
                lambda fmt=fmt: product(x, w, fmt) + residual,
            )
        b = Builder(tokens)
        pooled = b.add(OpKind.POOL, b.seqs(k), x=b.input(x), mode=PoolMode.CLS)
        out = b.add(
            OpKind.LINEAR,
            b.seqs(n),
            x=pooled,
            weight=b.tensor(w, fmt),
            bias=b.tensor(bias),
            activation=Activation.TANH,
        )
        yield case(
            f"linear-{fmt.name}-seqs-tanh".lower(),
            b,
            out,
            [2, 1, 8],
            lambda fmt=fmt: np.tanh(product(x[[0, 2, 3]], w, fmt) + bias),
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
                lambda xs=xs, ws=ws, fmt=fmt, kind=kind: TORCH[kind](product(xs, ws, fmt)),
            )


def extremes() -> Iterator[Case]:
    """Codes and activations at the ends of their ranges; blocks of zeros; outliers."""
    for fmt in (F.I8B32, F.I4B32):
        top = 127 if fmt is F.I8B32 else 15
        codes = np.random.default_rng(9).choice([0, 1, top - 1, top], (16, 3, 32))
        codes[0], codes[1] = top, 0
        scale = np.full((16, 3), 0.01, np.float16)
        scale[2] = 0
        low = np.linspace(-1, 1, 48).reshape(16, 3).astype(np.float16)
        parts = (pack_codes(codes.astype(np.uint8), fmt), scale, low)
        x = np.random.default_rng(10).choice([-1.0, 1.0], (5, 96)).astype(np.float32)
        x[0], x[1], x[2, :32], x[3, 40] = 1, -1, 0, 60
        x[4] = 0
        b = Builder(5)
        w = b.tensor(values_of(parts, fmt, 96), fmt)
        b.parts.update(zip(b.tensors[w].parts, parts, strict=True))
        out = b.add(OpKind.LINEAR, b.tokens(16), x=b.input(x), weight=w)
        yield case(
            f"linear-{fmt.name}-extremes".lower(),
            b,
            out,
            [5],
            lambda x=x, parts=parts, fmt=fmt: block_linear(x, parts, fmt),
            atol=1e-4,
        )


def rounding() -> Iterator[Case]:
    """Activation codes that lie on halves round to even."""
    x = np.zeros((2, 32), np.float32)
    x[0, :9] = [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5]
    x[1, :4] = [-127, 63.5, 64.5, 65.5]
    w = torch.eye(32).numpy()[:9]
    b = Builder(2)
    out = b.add(OpKind.LINEAR, b.tokens(9), x=b.input(x), weight=b.tensor(w, F.I8B32))
    even = np.rint(x[:, :9].astype(np.float64))
    unit = 127 * float(np.float16(1 / 127))
    yield case("linear-i8b32-half-to-even", b, out, [2], lambda: even * unit, atol=1e-4)


def cases() -> Iterator[Case]:
    yield from sizes()
    yield from fused()
    yield from activations()
    yield from extremes()
    yield from rounding()
