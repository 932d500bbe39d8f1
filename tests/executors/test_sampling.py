"""Sampling by the reference executor: the generator, and how often tokens are drawn."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from runtime_py.executors.base import SamplingRow
from runtime_py.executors.reference import sample, uniform
from tests.ops.cases import normal
from tests.ops.cases.sampling import mask_of, random_number

DRAWS = 4000
RARE = 3.1
"""Standard deviations that one in a thousand normal numbers passes."""


def test_uniform_is_splitmix64() -> None:
    """The published first outputs of SplitMix64, whose state starts at 0."""
    first, second = 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4
    # seed 0 is mixed to SplitMix64's own first output; seed -golden is mixed to 0
    golden = 0x9E3779B97F4A7C15
    assert uniform(2**64 - golden, 0) == (first >> 11) / 2**53
    assert uniform(2**64 - golden, 1) == (second >> 11) / 2**53
    assert uniform(0, 0) != uniform(0, 1)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, 2**64 - 1])
@pytest.mark.parametrize("position", [0, 1, 31, 2**31, 2**32 - 1])
def test_uniform_in_wrapping_arithmetic(seed: int, position: int) -> None:
    value = uniform(seed, position)
    assert 0 <= value < 1
    assert value == random_number(seed, position)


@pytest.mark.parametrize("along", ["seed", "position", "both"])
def test_uniform_is_uniform(along: str) -> None:
    """Close seeds and close positions give independent numbers."""
    values = np.array(
        [
            uniform(i if along != "position" else 7, i if along != "seed" else 3)
            for i in range(DRAWS)
        ]
    )
    steps = np.arange(DRAWS + 1) / DRAWS
    ordered = np.sort(values)
    distance = max((ordered - steps[:-1]).max(), (steps[1:] - ordered).max())
    assert distance * DRAWS**0.5 < 1.95  # Kolmogorov and Smirnov: one in a thousand
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.05


def probabilities(logits: np.ndarray, row: SamplingRow) -> np.ndarray:
    """By the published definitions of the cuts, in f64."""
    p = np.exp((logits.astype(np.float64) - logits.max()) / row.temperature)
    order = np.argsort(-p, kind="stable")
    if row.top_k:
        p[order[row.top_k :]] = 0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]  # what ranks above a token
    p[order[before >= row.top_p]] = 0
    p[p < row.min_p * p.max()] = 0
    return p / p.sum()


def chi_square_deviations(seen: np.ndarray, expected: np.ndarray) -> float:
    """Pearson's statistic as a standard normal number (Wilson and Hilferty 1931)."""
    freedom = len(seen) - 1
    statistic = float(((seen - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / spread**0.5


@pytest.mark.parametrize(
    "row",
    [
        SamplingRow(1.0),
        SamplingRow(0.5),
        SamplingRow(3.0),
        SamplingRow(1.0, top_k=5),
        SamplingRow(1.0, top_p=0.7),
        SamplingRow(2.0, min_p=0.2),
        SamplingRow(1.5, top_k=12, top_p=0.9, min_p=0.05),
    ],
    ids=lambda r: f"t{r.temperature:g}-k{r.top_k}-p{r.top_p:g}-m{r.min_p:g}",
)
def test_tokens_are_drawn_as_often_as_their_probability_says(row: SamplingRow) -> None:
    logits = normal(3, 25)
    wanted = probabilities(logits, row)
    rows = (
        SamplingRow(row.temperature, row.top_k, row.top_p, row.min_p, seed=i % 50, position=i // 50)
        for i in range(DRAWS)
    )
    drawn = Counter(sample(logits, r).token_id for r in rows)
    assert all(wanted[i] > 0 for i in drawn)
    counts = np.array([drawn[i] for i in range(len(logits))], np.float64)
    usual = wanted * DRAWS >= 5  # the rare ones together are one more bin
    seen = np.append(counts[usual], counts[~usual].sum())
    expected = np.append(wanted[usual] * DRAWS, wanted[~usual].sum() * DRAWS)
    seen, expected = seen[expected > 0], expected[expected > 0]
    assert len(seen) > 2
    assert chi_square_deviations(seen, expected) < RARE


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    logits = normal(4, 40)
    row = SamplingRow(1.0, seed=9, position=17)
    assert {sample(logits, row) for _ in range(3)} == {sample(logits.copy(), row)}
    others = {sample(logits, SamplingRow(1.0, seed=9, position=p)).token_id for p in range(50)}
    assert len(others) > 10


def test_logprobs_are_of_the_distribution_before_temperature_and_cuts() -> None:
    logits = normal(5, 30)
    row = SamplingRow(0.2, top_k=2, top_logprobs=20, mask=mask_of(30, range(0, 30, 3)))
    sampled = sample(logits, row)
    allowed = logits[::3].astype(np.float64)
    everything = allowed - np.log(np.exp(allowed).sum())
    assert len(sampled.top) == 10  # no masked token is reported
    np.testing.assert_allclose(sum(np.exp(v) for _, v in sampled.top), 1)
    for token, logprob in sampled.top:
        assert logprob == pytest.approx(everything[token // 3], abs=1e-6)
    assert dict(sampled.top)[sampled.token_id] == sampled.logprob


def test_the_input_logits_stay() -> None:
    logits = normal(6, 30)
    kept = logits.copy()
    sample(logits, SamplingRow(penalized=[(1, 1, 1)], repetition_penalty=2, bias=[(2, 5)]))
    np.testing.assert_array_equal(logits, kept)
