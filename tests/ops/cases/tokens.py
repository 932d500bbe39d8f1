"""EMBED and POOL: into the rows of tokens and out of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from runtime_py.program import OpKind, PoolMode, TensorFormat
from tests.ops.cases.builder import Builder, Case, case, normal
from tests.ops.cases.formats import block_linear, store, values_of

F = TensorFormat
TABLES = (F.F32, F.F16, F.I8R)


def embed() -> Iterator[Case]:
    for fmt in TABLES:
        for width in (5, 32, 384):
            table = normal(1, 50, width)
            values = values_of(store(table, fmt), fmt, width)
            b = Builder(50)
            out = b.add(OpKind.EMBED, b.tokens(width), table=b.tensor(table, fmt), scale=1.0)
            ids = [49, 0, 0, 7, 31, 49, 12]
            yield case(
                f"embed-{fmt.name}-width{width}".lower(),
                b,
                out,
                [2, 1, 4],
                lambda v=values, ids=ids: v[ids],
                ids=ids,
            )
    for fmt, positions in zip(TABLES, (F.I8R, F.F32, F.F16), strict=True):
        for offset in (0, 2):
            table, where, constant = normal(2, 20, 24), normal(3, 12 + offset, 24), normal(4, 24)
            values = values_of(store(table, fmt), fmt, 24)
            at = values_of(store(where, positions), positions, 24)
            b = Builder(20, max_positions=12)
            out = b.add(
                OpKind.EMBED,
                b.tokens(24),
                table=b.tensor(table, fmt),
                positions=b.tensor(where, positions),
                constant=b.tensor(constant),
                position_offset=offset,
                scale=np.float32(4.9),
            )
            ids, where_ids = [3, 4, 19, 0, 1, 2], [0, 1, 2, 9, 10, 11]
            scale = float(np.float32(4.9))
            yield case(
                f"embed-{fmt.name}-positions-{positions.name}-offset{offset}".lower(),
                b,
                out,
                [3, 3],
                lambda v=values, at=at, o=offset, c=constant, ids=ids, w=where_ids, s=scale: (
                    v[ids] * s + at[np.add(w, o)] + c
                ),
                ids=ids,
                contexts=[0, 9],
            )


def _pooled(rows: np.ndarray, mode: PoolMode, skip: int) -> np.ndarray:
    """One sequence, token by token; `rows` are all its tokens."""
    kept = [r.astype(np.float64) for r in rows[skip:]]
    if mode is PoolMode.CLS:
        return kept[0]
    if mode is PoolMode.LAST:
        return kept[-1]
    if mode is PoolMode.MAX:
        return np.array([max(column) for column in zip(*kept, strict=True)])
    weights = [1.0] * len(kept)
    if mode is PoolMode.WEIGHTED_MEAN:
        weights = [float(skip + i + 1) for i in range(len(kept))]
    total = sum(w * r for w, r in zip(weights, kept, strict=True))
    return total / (len(kept) ** 0.5 if mode is PoolMode.MEAN_SQRT_LEN else sum(weights))


def pooled_all(
    x: np.ndarray, lengths: Sequence[int], skips: Sequence[int], mode: PoolMode
) -> np.ndarray:
    starts = np.cumsum([0, *lengths])
    return np.stack(
        [
            _pooled(x[a : a + n], mode, skip)
            for a, n, skip in zip(starts, lengths, skips, strict=False)
        ]
    )


def pool() -> Iterator[Case]:
    lengths, skips = [1, 9, 2, 300, 40], [0, 4, 1, 17, 39]
    for mode in PoolMode:
        for width in (5, 64):
            x = normal(5, sum(lengths), width)
            for skip in ([0] * 5, skips):
                b = Builder(len(x))
                out = b.add(OpKind.POOL, b.seqs(width), x=b.input(x), mode=mode)
                yield case(
                    f"pool-{mode.name}-width{width}{'-skip' * any(skip)}".lower().replace("_", "-"),
                    b,
                    out,
                    lengths,
                    lambda x=x, skip=skip, mode=mode: pooled_all(x, lengths, skip, mode),
                    skips=skip,
                )
    x = normal(6, 12, 10)
    modes = (PoolMode.MEAN, PoolMode.CLS, PoolMode.MAX)
    b = Builder(12)
    out, source = b.seqs(30), b.input(x)
    for i, mode in enumerate(modes):
        b.add(OpKind.POOL, out, x=source, mode=mode, out_offset=10 * i)
    yield case(
        "pool-three-modes-side-by-side",
        b,
        out,
        [5, 1, 6],
        lambda: np.hstack([pooled_all(x, [5, 1, 6], [0] * 3, m) for m in modes]),
    )


def cases() -> Iterator[Case]:
    yield from embed()
    yield from pool()


def block_tables() -> Iterator[Case]:
    """Embedding tables in the block formats, alone and shared with a linear op."""
    ids = [49, 0, 0, 7, 31, 49, 12]
    for fmt in (F.I8B32, F.I4B32, F.S8B32):
        for width in (5, 32, 100):
            table = normal(7, 50, width)
            parts = store(table, fmt)
            b = Builder(50)
            shared = b.tensor(table, fmt)
            x = b.add(OpKind.EMBED, b.tokens(width), table=shared, scale=2.5)
            yield case(
                f"embed-{fmt.name}-width{width}".lower(),
                b,
                x,
                [2, 1, 4],
                lambda p=parts, fmt=fmt, width=width: 2.5 * values_of(p, fmt, width)[ids],
                ids=ids,
            )
            b = Builder(50)
            shared = b.tensor(table, fmt)
            x = b.add(OpKind.EMBED, b.tokens(width), table=shared, scale=1.0)
            out = b.add(OpKind.LINEAR, b.tokens(50), x=x, weight=shared, activation_bits=16)
            yield case(
                f"embed-{fmt.name}-tied-width{width}".lower(),
                b,
                out,
                [7],
                lambda p=parts, fmt=fmt, width=width: block_linear(
                    values_of(p, fmt, width)[ids].astype(np.float32), p, fmt, 16
                ),
                ids=ids,
                atol=2e-4,  # a code of 16 bits may round the other way
            )


def generation_cases() -> Iterator[Case]:
    yield from block_tables()
