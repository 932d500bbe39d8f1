"""UNARY, BINARY, GLU, NORMALIZE and NORM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as nn

from runtime_py.program import (
    FLAG_SWAP,
    FLAG_UP_FIRST,
    Activation,
    BinaryOp,
    NormMode,
    OpKind,
    PoolMode,
)
from tests.ops.cases.builder import Builder, Case, case, normal

A = Activation


def _torch(f: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[npt.ArrayLike], np.ndarray]:
    return lambda x: f(torch.from_numpy(np.asarray(x, np.float64))).numpy()


TORCH: dict[Activation, Callable[[npt.ArrayLike], np.ndarray]] = {
    A.NONE: lambda x: np.asarray(x, np.float64),
    A.GELU: _torch(nn.gelu),
    A.GELU_TANH: _torch(lambda x: nn.gelu(x, approximate="tanh")),
    A.QUICK_GELU: _torch(lambda x: x * torch.sigmoid(1.702 * x)),
    A.RELU: _torch(nn.relu),
    A.RELU_SQUARED: _torch(lambda x: nn.relu(x) ** 2),
    A.SILU: _torch(nn.silu),
    A.TANH: _torch(torch.tanh),
    A.SIGMOID: _torch(torch.sigmoid),
    A.MISH: _torch(nn.mish),
    A.ELU: _torch(nn.elu),
    A.LEAKY_RELU: _torch(nn.leaky_relu),
    A.SOFTPLUS: _torch(nn.softplus),
    A.ABS: _torch(torch.abs),
    A.SQRT: _torch(torch.sqrt),
    A.EXP: _torch(torch.exp),
    A.NEG: _torch(torch.neg),
    A.HARD_SWISH: _torch(nn.hardswish),
}
"""The activation functions as torch computes them in float64."""


def unary() -> Iterator[Case]:
    spread = np.concatenate(
        [np.linspace(-12, 12, 481), [0, -0.0, 1e-30, -1e-30, 88, -88, 150, -150, 1e4, -1e4]]
    ).astype(np.float32)
    for kind in Activation:
        x = spread[np.abs(spread) <= 88] if kind is A.EXP else spread
        x = np.abs(x) if kind is A.SQRT else x
        x = np.resize(x, (3, 167))
        for alpha in (1.0, -0.75):
            if alpha < 0 and kind is A.SQRT:
                continue
            b = Builder(3)
            out = b.add(
                OpKind.UNARY, b.tokens(x.shape[1]), x=b.input(x), activation=kind, alpha=alpha
            )
            yield case(
                f"unary-{kind.name}-alpha{alpha:g}".lower().replace("_", "-"),
                b,
                out,
                [3],
                lambda x=x, kind=kind, alpha=alpha: TORCH[kind](x.astype(np.float64) * alpha),
                atol=2e-6,
                rtol=1e-5,
            )
    x = normal(1, 4, 5)
    b = Builder(4)
    slot = b.input(x)
    b.add(OpKind.UNARY, slot, x=slot, activation=A.SILU, alpha=1.0)
    yield case("unary-silu-in-place", b, slot, [1, 3], lambda: TORCH[A.SILU](x))


BINARY: dict[BinaryOp, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    BinaryOp.ADD: np.add,
    BinaryOp.SUB: np.subtract,
    BinaryOp.MUL: np.multiply,
    BinaryOp.DIV: np.divide,
}


def binary() -> Iterator[Case]:
    x, y = normal(2, 6, 37), normal(3, 6, 37) + np.float32(4)
    row, scalar = normal(4, 37) + np.float32(4), np.float32([2.5])
    x = np.where(np.abs(x) < 0.1, np.float32(0.1), x)
    for kind, f in BINARY.items():
        b = Builder(6)
        out = b.add(OpKind.BINARY, b.tokens(37), a=b.input(x), b=b.input(y), op=kind)
        yield case(
            f"binary-{kind.name}-slots".lower(),
            b,
            out,
            [6],
            lambda f=f: f(x.astype(np.float64), y.astype(np.float64)),
        )
        for (what, c), swap in product({"row": row, "scalar": scalar}.items(), (0, FLAG_SWAP)):
            b = Builder(6)
            slot = b.input(x)
            b.add(OpKind.BINARY, slot, flags=swap, a=slot, constant=b.tensor(c), op=kind)
            yield case(
                f"binary-{kind.name}-{what}{'-swap' * swap}-in-place".lower(),
                b,
                slot,
                [2, 4],
                lambda f=f, c=c, swap=swap: (
                    f(c.astype(np.float64), x) if swap else f(x.astype(np.float64), c)
                ),
            )


def glu() -> Iterator[Case]:
    for width, kind in ((20, A.SILU), (33, A.GELU), (5, A.GELU_TANH), (64, A.RELU)):
        x = normal(5, 7, 2 * width)
        first, second = x[:, :width], x[:, width:].astype(np.float64)
        for flag in (0, FLAG_UP_FIRST):
            b = Builder(7)
            out = b.add(OpKind.GLU, b.tokens(width), flags=flag, gate=b.input(x), activation=kind)
            yield case(
                f"glu-{kind.name}-{'up' if flag else 'gate'}-first".lower().replace("_", "-"),
                b,
                out,
                [3, 4],
                lambda f=first, s=second, flag=flag, kind=kind: (
                    f * TORCH[kind](s) if flag else TORCH[kind](f) * s
                ),
            )
        b = Builder(7)
        gate = b.input(first)
        b.add(OpKind.GLU, gate, gate=gate, up=b.input(second), activation=kind)
        yield case(
            f"glu-{kind.name}-two-inputs-in-place".lower().replace("_", "-"),
            b,
            gate,
            [7],
            lambda f=first, s=second, kind=kind: TORCH[kind](f) * s,
        )


def normalize() -> Iterator[Case]:
    x = normal(6, 5, 19)
    x[1], x[2], x[3] = 0, x[2] * np.float32(1e15), x[3] * np.float32(1e-9)
    wanted = lambda x=x: nn.normalize(  # noqa: E731
        torch.from_numpy(x.astype(np.float64)), dim=1, eps=1e-12
    ).numpy()
    b = Builder(5)
    out = b.add(OpKind.NORMALIZE, b.tokens(19), x=b.input(x), eps=1e-12)
    yield case("normalize-tokens-zero-row", b, out, [5], wanted)
    b = Builder(5)
    pooled = b.add(OpKind.POOL, b.seqs(19), x=b.input(x), mode=PoolMode.CLS)
    b.add(OpKind.NORMALIZE, pooled, x=pooled, eps=1e-12)
    yield case("normalize-seqs-in-place", b, pooled, [1] * 5, wanted)


def _normed(
    x: np.ndarray,
    mode: NormMode,
    group: int,
    gamma: np.ndarray | None,
    beta: np.ndarray | None,
    eps: float,
) -> np.ndarray:
    groups = torch.from_numpy(x.astype(np.float64)).reshape(len(x), -1, group or x.shape[1])
    g, b = (None if v is None else torch.from_numpy(v.astype(np.float64)) for v in (gamma, beta))
    if mode is NormMode.LAYER:
        out = nn.layer_norm(groups, groups.shape[2:], g, b, eps)
    else:
        out = nn.rms_norm(groups, groups.shape[2:], g, eps)
        out = out if b is None else out + b
    return out.reshape(x.shape).numpy()


def norm() -> Iterator[Case]:
    for mode, (width, group) in product(NormMode, ((384, 0), (33, 0), (5, 0), (48, 8), (72, 24))):
        x, r = normal(7, 9, width) * 2 + 1, normal(8, 9, width)
        gamma, beta = normal(9, group or width), normal(10, group or width)
        b = Builder(9)
        out = b.add(
            OpKind.NORM,
            b.tokens(width),
            x=b.input(x),
            residual=b.input(r),
            gamma=b.tensor(gamma),
            beta=b.tensor(beta),
            mode=mode,
            group=group,
            eps=1e-5,
        )
        name = f"norm-{mode.name}-{width}-group{group}".lower()
        yield case(
            name + "-residual",
            b,
            out,
            [4, 5],
            lambda x=x, r=r, mode=mode, group=group, gamma=gamma, beta=beta: _normed(
                x.astype(np.float64) + r, mode, group, gamma, beta, 1e-5
            ),
        )
        b = Builder(9)
        slot = b.input(x)
        b.add(OpKind.NORM, slot, x=slot, gamma=b.tensor(gamma), mode=mode, group=group, eps=1e-12)
        yield case(
            name + "-in-place",
            b,
            slot,
            [9],
            lambda x=x, mode=mode, group=group, gamma=gamma: _normed(
                x, mode, group, gamma, None, 1e-12
            ),
        )
    yield from _norm_edges()


def _norm_edges() -> Iterator[Case]:
    x, r = normal(11, 6, 40), normal(12, 6, 40)
    b = Builder(6)
    total = b.tokens(40)
    b.add(OpKind.NORM, b.tokens(40), out2=total, x=b.input(x), residual=b.input(r), eps=1e-5)
    yield case("norm-out2-is-the-sum", b, total, [6], lambda: x.astype(np.float64) + r)
    b = Builder(6)
    stream = b.input(x)
    b.add(OpKind.NORM, b.tokens(40), out2=stream, x=stream, residual=b.input(r), mode=1, eps=1e-5)
    yield case("norm-out2-over-x", b, stream, [6], lambda: x.astype(np.float64) + r)
    far = x + np.float32(1000)
    b = Builder(6)
    out = b.add(OpKind.NORM, b.tokens(40), x=b.input(far), eps=1e-5)
    yield case(
        "norm-layer-far-from-zero",
        b,
        out,
        [6],
        lambda: _normed(far, NormMode.LAYER, 0, None, None, 1e-5),
        atol=2e-4,
    )
    flat = np.repeat(np.float32([[0], [3], [-2]]), 32, axis=1)
    b = Builder(3)
    out = b.add(OpKind.NORM, b.tokens(32), x=b.input(flat), eps=1e-5)
    yield case("norm-layer-constant-rows", b, out, [3], lambda: np.zeros((3, 32)))
    b = Builder(6)
    pooled = b.add(OpKind.POOL, b.seqs(40), x=b.input(x), mode=PoolMode.LAST)
    b.add(OpKind.NORM, pooled, x=pooled, eps=1e-5)
    yield case(
        "norm-layer-seqs",
        b,
        pooled,
        [1, 2, 3],
        lambda: _normed(x[[0, 2, 5]], NormMode.LAYER, 0, None, None, 1e-5),
    )


def cases() -> Iterator[Case]:
    yield from unary()
    yield from binary()
    yield from glu()
    yield from normalize()
    yield from norm()


def norm_columns() -> Iterator[Case]:
    """The queries' and keys' heads of a packed row, in place; the rest stays."""
    x = normal(13, 9, 100) * 2 + 1
    for mode, (offset, columns, group) in product(
        NormMode, ((0, 64, 16), (36, 64, 64), (5, 60, 20), (3, 7, 0), (0, 100, 0))
    ):
        gamma, beta = normal(14, group or columns), normal(15, group or columns)
        b = Builder(9)
        slot = b.input(x)
        b.add(
            OpKind.NORM,
            slot,
            x=slot,
            gamma=b.tensor(gamma),
            beta=b.tensor(beta) if mode is NormMode.LAYER else -1,
            mode=mode,
            group=group,
            offset=offset,
            columns=columns,
            eps=1e-6,
        )

        def truth(
            mode: NormMode = mode,
            part: slice = slice(offset, offset + columns),
            group: int = group,
            gamma: np.ndarray = gamma,
            beta: np.ndarray = beta,
        ) -> np.ndarray:
            out = x.astype(np.float64)
            kept = beta if mode is NormMode.LAYER else None
            out[:, part] = _normed(x[:, part], mode, group, gamma, kept, 1e-6)
            return out

        yield case(
            f"norm-{mode.name}-columns{offset}-{offset + columns}-group{group}".lower(),
            b,
            slot,
            [4, 5],
            truth,
        )


def generation_cases() -> Iterator[Case]:
    yield from norm_columns()
