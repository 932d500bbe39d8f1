"""What must not spread: masked rows, NaN and infinities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import OpKind, PoolMode, TensorFormat
from tests.ops.cases.attention import attended
from tests.ops.cases.builder import Builder, Case, case, make_step, normal
from tests.ops.cases.tokens import pooled_all

NAN = np.nan


def masked_rows() -> Iterator[Case]:
    """A query whose every key has a bias of minus infinity gets zeros (G6)."""
    x = normal(1, 12, 48)
    lengths = [1, 6, 1, 4]
    bias = normal(2, 2, 2 * 6 - 1)
    bias[:, 5] = -np.inf  # no token sees itself: one-token sequences see nothing
    b = Builder(12, max_positions=6)
    qkv = b.input(x)
    out = b.add(
        OpKind.ATTENTION,
        b.tokens(16),
        q=qkv,
        k=qkv,
        v=qkv,
        bias=b.tensor(bias),
        heads=2,
        kv_heads=2,
        head_dim=8,
        k_offset=16,
        v_offset=32,
        scale=0.35,
    )

    def truth() -> np.ndarray:
        wanted = attended(np.split(x, 3, axis=1), lengths, 2, 2, float(np.float32(0.35)), bias=bias)
        wanted[[0, 7]] = 0
        return wanted

    yield case("g6-all-keys-masked-gives-zeros", b, out, lengths, truth)


def non_finite() -> Iterator[Case]:
    """One sequence's NaN or infinity is its own."""
    for what, bad in (("nan", np.nan), ("inf", np.inf)):
        for fmt in (TensorFormat.F32, TensorFormat.F16, TensorFormat.I8B32, TensorFormat.I4B32):
            yield _poisoned(f"g6-{what}-stays-in-its-sequence-{fmt.name}".lower(), bad, fmt)
    x = normal(5, 9, 8)
    x[4, 3] = np.nan
    for mode in PoolMode:
        b = Builder(9)
        out = b.add(OpKind.POOL, b.seqs(8), x=b.input(x), mode=mode)
        # cls and last of the middle sequence miss the poisoned token
        hit = mode not in (PoolMode.CLS, PoolMode.LAST)

        def truth(mode: PoolMode = mode, hit: bool = hit) -> np.ndarray:
            wanted = pooled_all(x, [3, 3, 3], [0, 0, 0], mode)
            wanted[1, 3] = NAN if hit else wanted[1, 3]
            return wanted

        yield case(
            f"g6-nan-pool-{mode.name}".lower().replace("_", "-"),
            b,
            out,
            [3, 3, 3],
            truth,
            statuses=bytes([0, int(hit), 0]),
        )


def _poisoned(name: str, bad: float, fmt: TensorFormat) -> Case:
    """embed -> linear -> attention -> norm -> linear -> mean -> normalize."""
    lengths = [5, 3, 4]
    table = normal(3, 12, 32)
    table[6, 17] = bad
    b = Builder(12)
    x = b.input(table)
    qkv = b.add(OpKind.LINEAR, b.tokens(96), x=x, weight=b.tensor(normal(4, 96, 32) / 6, fmt))
    mixed = b.add(
        OpKind.ATTENTION,
        b.tokens(32),
        q=qkv,
        k=qkv,
        v=qkv,
        heads=4,
        kv_heads=4,
        head_dim=8,
        k_offset=32,
        v_offset=64,
        scale=0.35,
    )
    b.add(OpKind.NORM, mixed, x=mixed, residual=x, eps=1e-5)
    wide = b.add(OpKind.LINEAR, b.tokens(40), x=mixed, weight=b.tensor(normal(5, 40, 32) / 6, fmt))
    pooled = b.add(OpKind.POOL, b.seqs(40), x=wide, mode=PoolMode.MEAN)
    b.add(OpKind.NORMALIZE, pooled, x=pooled, eps=1e-12)

    def truth() -> np.ndarray:
        """The same sequences without the bad value; the middle one lost."""
        clean = dict(b.parts)
        clean["t0"] = np.nan_to_num(table, nan=0.0, posinf=0.0)
        program = b.program(pooled)
        weights = MemoryWeights(program, {n: memoryview(a).cast("B") for n, a in clean.items()})
        out = np.array(
            ReferenceExecutor.from_weights(program, weights).run(make_step(lengths)).output,
            np.float64,
        )
        out[1] = NAN
        return out

    return case(name, b, pooled, lengths, truth, atol=5e-3, statuses=bytes([0, 1, 0]))


def cases() -> Iterator[Case]:
    yield from masked_rows()
    yield from non_finite()
