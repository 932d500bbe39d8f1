"""Sampling: the token that each kind of `SamplingRow` takes from known logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from runtime_py.executors.base import Sampled, SamplingRow
from runtime_py.program import OpKind
from tests.ops.cases.builder import Builder, normal
from tests.ops.cases.paged import Paged
from tests.ops.cases.steps import StepsCase, steps_case

Row = SamplingRow
U64 = np.uint64


def random_number(seed: int, position: int) -> float:
    """docs/design.md 7.2 in numpy's wrapping 64-bit integers."""
    golden = U64(0x9E3779B97F4A7C15)

    def mix(z: np.uint64) -> np.uint64:
        z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
        return z ^ (z >> U64(31))

    with np.errstate(over="ignore"):
        z = mix(mix(U64(seed) + golden) + U64(position + 1) * golden)
    return float(z >> U64(11)) / 2**53


def taken(logits: np.ndarray, row: SamplingRow) -> Sampled:
    """The expected token, candidate by candidate."""
    if not np.isfinite(logits).all():
        return Sampled(-1, float("nan"))
    f = np.float32
    adjusted = {i: f(v) for i, v in enumerate(logits)}
    for i, _, count in row.penalized:
        v, repetition = adjusted[i], f(row.repetition_penalty)
        v = v / repetition if v > 0 else v * repetition
        if count > 0:
            v = f(v - f(row.presence_penalty))
            v = f(v - f(f(row.frequency_penalty) * f(count)))
        adjusted[i] = v
    for i, bias in row.bias:
        adjusted[i] = f(adjusted[i] + f(bias))
    if row.mask is not None:
        adjusted = {i: v for i, v in adjusted.items() if row.mask[i // 8] >> i % 8 & 1}
    ranked = sorted(adjusted, key=lambda i: (-adjusted[i], i))
    values = torch.tensor([float(adjusted[i]) for i in ranked], dtype=torch.float64)
    logprobs = dict(zip(ranked, torch.log_softmax(values, 0).tolist(), strict=True))
    top = tuple((i, logprobs[i]) for i in ranked[: row.top_logprobs])
    token = ranked[0] if row.temperature == 0 else _drawn(adjusted, ranked, row)
    return Sampled(token, logprobs[token], top)


def _drawn(adjusted: dict[int, np.float32], ranked: list[int], row: SamplingRow) -> int:
    f = np.float32
    best = adjusted[ranked[0]]
    # weights as whole multiples of 2^-32: Python's integers are exact
    weight = {
        i: round(np.exp(float(f(f(adjusted[i] - best) / f(row.temperature)))) * 2**32)
        for i in ranked
    }
    kept = ranked[: row.top_k or len(ranked)]
    nucleus, share, total = [], 0, sum(weight[i] for i in kept)
    for i in kept:
        nucleus.append(i)
        share += weight[i]
        if share >= float(f(row.top_p)) * total:
            break
    if row.top_p == 1:
        nucleus = kept
    kept = [i for i in nucleus if weight[i] >= float(f(row.min_p)) * 2**32]
    r = random_number(row.seed, row.position) * sum(weight[i] for i in kept)
    share = 0
    for i in kept:
        share += weight[i]
        if share > r:
            return i
    raise AssertionError("the sum of all weights exceeds r")


def mask_of(vocab: int, allowed: Sequence[int]) -> bytes:
    bits = sum(1 << i for i in allowed)
    return bits.to_bytes(-(-vocab // 32) * 4, "little")


def table(vocab: int, spread: float = 3.0) -> np.ndarray:
    """Logits that each token gives, with ties among the best of token 1."""
    logits = normal(vocab, vocab, vocab) * np.float32(spread)
    logits[1, [7, 3, 20]] = logits[1].max() + 1
    return logits


def sampling_case(
    name: str,
    rows: Sequence[SamplingRow],
    vocab: int = 50,
    logits: np.ndarray | None = None,
    texts: Sequence[int] | None = None,
    atol: float = 1e-5,
) -> StepsCase:
    """One step; sequence i has one token, whose row of ``logits`` row i samples."""
    logits = table(vocab) if logits is None else logits
    texts = [i % vocab for i in range(len(rows))] if texts is None else texts
    b = Builder(vocab)
    x = b.input(logits)
    b.add(OpKind.CACHE, -1, k=x, v=x, layer=0, kv_heads=1, head_dim=4)
    out = b.add(OpKind.ROWS, b.picked(vocab), x=x)
    paged = Paged([[t] for t in texts], blocks=len(texts))
    paged.step(*((i, 1) for i in range(len(rows))), sampling=list(rows))
    wanted = [taken(logits[t], r) for t, r in zip(texts, rows, strict=True)]
    return steps_case(
        f"sampling-{name}",
        b,
        out,
        paged,
        lambda: [wanted],
        statuses=[bytes(int(s.token_id < 0) for s in wanted)],
        atol=atol,
        rtol=0,
    )


def seeded(row: SamplingRow, count: int = 16) -> list[SamplingRow]:
    """``row`` with seeds and positions of every size."""
    seeds = [0, 1, 2, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    return [
        row._replace(seed=seeds[i % len(seeds)], position=i * 7919 % 100_003) for i in range(count)
    ]


def cases() -> Iterator[StepsCase]:
    yield sampling_case("greedy", [Row(top_logprobs=i) for i in (0, 1, 3, 20)])
    yield sampling_case("greedy-ties", [Row(top_logprobs=3)] * 2, texts=[1, 1])
    yield sampling_case("greedy-ignores-cuts", [Row(top_k=3, top_p=0.1, min_p=0.9, seed=5)] * 3)
    for vocab in (50, 1000):
        for temperature in (0.3, 1.0, 2.5):
            rows = seeded(Row(temperature, top_logprobs=2))
            yield sampling_case(f"temperature{temperature:g}-vocab{vocab}", rows, vocab)
    drawn = Row(1.0)
    for k in (1, 2, 5, 49, 50, 5000):
        yield sampling_case(f"top-k{k}", seeded(drawn._replace(top_k=k)))
    for p in (0.01, 0.5, 0.9, 0.999):
        yield sampling_case(f"top-p{p:g}", seeded(drawn._replace(top_p=p)), 1000)
    for p in (0.02, 0.5, 1.0):
        yield sampling_case(f"min-p{p:g}", seeded(drawn._replace(min_p=p)))
    cuts = Row(1.5, top_k=20, top_p=0.8, min_p=0.1, top_logprobs=5)
    yield sampling_case("all-cuts", seeded(cuts, 32))
    yield sampling_case("ties-cut-in-id-order", seeded(Row(1.0, top_k=2)), texts=[1] * 16)
    flat = np.zeros((4, 50), np.float32)
    flat = np.resize(flat, (50, 50))
    yield sampling_case("flat", seeded(Row(0.7, top_p=0.31)), logits=flat)
    wide = np.linspace(-300, 300, 2500, dtype=np.float32).reshape(50, 50)
    wide[:, 13] = 1e4
    yield sampling_case("far-apart", seeded(Row(1e-3)), logits=wide, atol=1e-2)
    yield from adjusted()
    yield from not_finite()


def adjusted() -> Iterator[StepsCase]:
    """Penalties, bias and mask change what is drawn and reported."""
    seen = [(3, 1, 0), (7, 0, 1), (20, 2, 3), (0, 1, 1), (49, 0, 9)]
    for name, row in {
        "repetition": Row(repetition_penalty=1.8, penalized=seen),
        "presence": Row(presence_penalty=1.5, penalized=seen),
        "frequency": Row(frequency_penalty=0.7, penalized=seen),
        "negative": Row(
            repetition_penalty=0.5, presence_penalty=-2.0, frequency_penalty=-0.3, penalized=seen
        ),
        "bias": Row(bias=[(3, -100.0), (49, 4.5), (0, 0.25)]),
        "mask": Row(mask=mask_of(50, [1, 8, 9, 31, 32, 49])),
        "mask-of-one": Row(mask=mask_of(50, [49])),
        "everything": Row(
            repetition_penalty=1.3,
            presence_penalty=0.5,
            frequency_penalty=0.25,
            penalized=seen,
            bias=[(7, 3.0), (12, -1.0), (0, 40.0)],
            mask=mask_of(50, range(1, 40)),
        ),
    }.items():
        row = row._replace(top_logprobs=6)
        drawn = seeded(row._replace(temperature=0.9, top_k=9, top_p=0.95), 8)
        yield sampling_case(f"adjusted-{name}", [row] * 6 + drawn)


def not_finite() -> Iterator[StepsCase]:
    """A row with a NaN or an infinity has no token; its neighbours do not notice."""
    logits = table(50)
    logits[2, 30], logits[3, 0], logits[5, 49] = np.nan, np.inf, -np.inf
    rows = [Row(), Row(1.0, seed=3), Row(), Row(1.0), Row(top_logprobs=2), Row(0.5, top_k=3)]
    yield sampling_case("g6-not-finite", [*rows, Row()], logits=logits)
