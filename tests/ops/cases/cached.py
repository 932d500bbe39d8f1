"""CACHE, ROWS and ATTENTION over the cache: chunks, mixed steps, forks, reused blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from runtime_py.program import FLAG_CAUSAL, OpKind
from tests.ops.cases.attention import attended
from tests.ops.cases.builder import Builder, Floats, normal
from tests.ops.cases.paged import Paged
from tests.ops.cases.steps import Output, StepsCase, rows_of, steps_case

LENGTHS = (70, 33, 1, 64, 100)


@dataclass(frozen=True)
class Shape:
    """One attention op's fields, and which values it sees."""

    heads: int = 4
    kv_heads: int = 2
    dim: int = 16
    window: int = 0
    softcap: float = 0.0
    biased: bool = False
    spread: float = 1.0

    @property
    def widths(self) -> tuple[int, int]:
        return self.heads * self.dim, self.kv_heads * self.dim


def sequences(vocab: int, lengths: Sequence[int] = LENGTHS, seed: int = 0) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocab, n).tolist() for n in lengths]


def attention_case(
    name: str,
    shape: Shape,
    plan: Callable[[Paged], None],
    *,
    texts: list[list[int]] | None = None,
    kv_format: str = "f32",
    atol: float = 1e-5,
) -> StepsCase:
    """q, k and v lie in one slot, with other columns before and between them."""
    q_width, kv_width = shape.widths
    vocab = q_width + 5
    x = normal(len(name), vocab, 3 + q_width + 2 * kv_width + 1) * np.float32(shape.spread)
    at_k, at_v = 3 + q_width, 3 + q_width + kv_width + 1
    texts = sequences(vocab) if texts is None else texts
    bias = normal(1, shape.heads, 2 * 128 - 1) if shape.biased else None
    b = Builder(vocab, max_positions=0 if bias is None else 128)
    qkv = b.input(x)
    scale = float(np.float32(shape.dim**-0.5))
    sizes = {"kv_heads": shape.kv_heads, "head_dim": shape.dim}
    b.add(OpKind.CACHE, -1, k=qkv, v=qkv, layer=3, k_offset=at_k, v_offset=at_v, **sizes)
    out = b.add(
        OpKind.ATTENTION,
        b.tokens(q_width),
        flags=FLAG_CAUSAL,
        q=qkv,
        bias=-1 if bias is None else b.tensor(bias),
        heads=shape.heads,
        q_offset=3,
        window=shape.window,
        cache=4,
        scale=scale,
        softcap=shape.softcap,
        **sizes,
    )
    paged = Paged(texts, blocks=24, seed=len(name))
    plan(paged)

    def truth() -> list[Output]:
        values: list[Floats] = []
        for text in texts:
            q, k, v = np.split(x[text][:, 3:], [q_width, at_v - 3], axis=1)
            k = k[:, :kv_width]
            if kv_format == "f16":
                k, v = (a.astype(np.float16).astype(np.float32) for a in (k, v))
            values.append(
                attended(
                    (q, k, v),
                    [len(text)],
                    shape.heads,
                    shape.kv_heads,
                    scale,
                    causal=True,
                    window=shape.window,
                    softcap=shape.softcap,
                    bias=bias,
                )
            )
        return rows_of(paged, values, vocab)

    return steps_case(
        f"cached-attention-{name}",
        b,
        b.logits(out),
        paged,
        truth,
        kv_format=kv_format,
        atol=atol,
    )


def whole(p: Paged) -> None:
    """Every prompt in one chunk."""
    p.step(*enumerate(map(len, p.sequences)))


def chunks(size: int) -> Callable[[Paged], None]:
    """Every prompt in chunks of ``size``, sequences side by side."""

    def plan(p: Paged) -> None:
        for at in range(0, max(map(len, p.sequences)), size):
            rest = ((i, min(size, len(s) - at)) for i, s in enumerate(p.sequences))
            p.step(*((i, n) for i, n in rest if n > 0))

    return plan


def mixed(p: Paged) -> None:
    """Prefill chunks of some sequences beside decodes of others, joining and leaving."""
    p.step((0, 69))
    p.step((0, 1), (1, 10), wanted="last")
    p.end(0)
    p.step((2, 1), (1, 22))
    p.step((1, 1), (3, 31))
    p.end(1)
    p.step((3, 1), (4, 64), wanted="last")
    p.step((4, 1), (3, 1))
    p.step((3, 30), (4, 34), wanted="none")
    p.step((4, 1), (3, 1))


def forked(p: Paged) -> None:
    """Two forks in the middle of a block, one at its border; all go on side by side."""
    p.step((0, 40))
    p.fork(0, 1)
    p.fork(0, 2)
    p.step((0, 1), (1, 1), (2, 1))
    p.step((2, 23), (0, 2), (1, 7))
    p.fork(2, 3)
    p.step((3, 3), (2, 5))


def forks(vocab: int) -> list[list[int]]:
    base = sequences(vocab, [64])[0]
    tails = sequences(vocab, [10, 30, 40, 3], seed=1)
    first, second, third = (base[:40] + tails[i] for i in range(3))
    return [first, second, third, third[:64] + tails[3]]


def cached_attention() -> Iterator[StepsCase]:
    yield attention_case("whole", Shape(), whole)
    for size in (1, 7, 32, 45):
        yield attention_case(f"chunks-of-{size}", Shape(), chunks(size))
    yield attention_case("mixed", Shape(), mixed)
    yield attention_case("forked", Shape(), forked, texts=forks(69))
    for dim in (5, 24, 32, 64):
        yield attention_case(f"dim{dim}", Shape(3, 3, dim), mixed)
    yield attention_case("mqa", Shape(4, 1, 8), mixed)
    yield attention_case("gqa3-dim64", Shape(9, 3, 64), mixed)  # SmolLM2-135M
    for window in (1, 5, 32, 40):
        yield attention_case(f"window{window}", Shape(window=window), mixed)
    yield attention_case("softcap", Shape(softcap=5.0, spread=3.0), mixed, atol=2e-5)
    yield attention_case("bias", Shape(biased=True), mixed)
    yield attention_case("sharp", Shape(spread=12.0), mixed, atol=1e-3)
    yield attention_case(
        "window-softcap-forked",
        Shape(window=20, softcap=20.0),
        forked,
        texts=forks(69),
    )
    for plan in (mixed, chunks(7)):
        name = "mixed" if plan is mixed else "chunks-of-7"
        yield attention_case(f"f16-{name}", Shape(), plan, kv_format="f16", atol=2e-5)


def two_layers() -> Iterator[StepsCase]:
    """Layers of different sizes, keys and values from slots of their own."""
    vocab = 40
    q, k, v = (normal(3 + i, vocab, 24) for i in range(3))
    b = Builder(vocab)
    slots = [b.input(x) for x in (q, k, v)]
    out = b.tokens(24)
    outs = []
    for layer, kv_heads, dim, offset in ((0, 3, 8, 0), (7, 1, 4, 20)):
        b.add(
            OpKind.CACHE,
            -1,
            k=slots[1],
            v=slots[2],
            layer=layer,
            kv_heads=kv_heads,
            head_dim=dim,
            k_offset=offset,
            v_offset=offset,
        )
        out = b.tokens(3 * dim)
        b.add(
            OpKind.ATTENTION,
            out,
            flags=FLAG_CAUSAL,
            q=slots[0],
            heads=3,
            kv_heads=kv_heads,
            head_dim=dim,
            cache=layer + 1,
            scale=0.25,
        )
        outs.append(out)
    # layer 7's 12 columns are added to layer 0's first ones
    narrow = b.tensor(np.eye(24, 12, dtype=np.float32))
    total = b.add(OpKind.LINEAR, b.tokens(24), x=outs[1], weight=narrow, residual=outs[0])
    texts = sequences(vocab, (40, 9))
    paged = Paged(texts, blocks=5)
    paged.step((0, 33), (1, 4))
    paged.step((1, 5), (0, 7))

    def truth() -> list[Output]:
        values = []
        for text in texts:
            n = [len(text)]
            wide = attended((q[text], k[text], v[text]), n, 3, 3, 0.25, causal=True)
            small = (q[text][:, :12], k[text][:, 20:], v[text][:, 20:])
            wide[:, :12] += attended(small, n, 3, 1, 0.25, causal=True)
            values.append(wide)
        return rows_of(paged, values, vocab)

    yield steps_case("cached-attention-two-layers", b, b.logits(total), paged, truth)


def picked_rows() -> Iterator[StepsCase]:
    """ROWS alone: all, some and none of the step's rows."""
    vocab = 37
    x = normal(8, vocab, vocab)
    texts = sequences(vocab, (50, 3))
    b = Builder(vocab)
    slot = b.input(x)
    b.add(OpKind.CACHE, -1, k=slot, v=slot, layer=0, kv_heads=1, head_dim=4)
    out = b.add(OpKind.ROWS, b.picked(vocab), x=slot)
    paged = Paged(texts, blocks=4)
    paged.step((0, 17), wanted="none")
    paged.step((0, 16), (1, 2))
    paged.step((1, 1), (0, 17), wanted="last")
    yield steps_case(
        "rows-all-last-none", b, out, paged, lambda: rows_of(paged, [x[t] for t in texts], vocab)
    )


def poisoned() -> Iterator[StepsCase]:
    """One sequence's NaN is its own, also when its blocks go to another sequence.

    The new owner fills the blocks in part; what is left in the rest must not leak through
    a weight of zero.
    """
    vocab = 16
    x = normal(9, vocab, 32)
    x[15] = np.nan  # q, k and v of token 15
    clean = [i for t in sequences(15, (33,)) for i in t]
    texts = [[1, 2, 15, 3] * 10, clean, clean[:33]]
    b = Builder(vocab)
    qkv = b.input(x)
    sizes = {"kv_heads": 1, "head_dim": 8}
    b.add(OpKind.CACHE, -1, k=qkv, v=qkv, layer=0, k_offset=16, v_offset=24, **sizes)
    out = b.add(
        OpKind.ATTENTION,
        b.tokens(16),
        flags=FLAG_CAUSAL,
        q=qkv,
        heads=2,
        cache=1,
        scale=0.35,
        **sizes,
    )
    paged = Paged(texts, blocks=4)
    paged.step((0, 40), (1, 20), wanted="last")
    paged.step((1, 13))
    paged.end(0)
    paged.step((2, 20))
    paged.step((2, 13))

    def truth() -> list[Output]:
        values = [
            attended(np.split(x[t], [16, 24], axis=1), [len(t)], 2, 1, 0.35, causal=True)
            for t in texts
        ]
        return rows_of(paged, values, vocab)

    yield steps_case(
        "g6-nan-stays-in-its-blocks",
        b,
        b.logits(out),
        paged,
        truth,
        statuses=[b"\1\0", b"\0", b"\0", b"\0"],
    )


def cases() -> Iterator[StepsCase]:
    yield from cached_attention()
    yield from two_layers()
    yield from picked_rows()
    yield from poisoned()
