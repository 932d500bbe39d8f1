"""The cost model: what it learns, and what no data can make it say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.batching import CostProfile, StepShape
from runtime_py.batching.cost_model import CostModel
from runtime_py.batching.types import MAX_NS

shapes = st.builds(
    lambda lengths, threads: StepShape(
        len(lengths), sum(lengths), sum(n * n for n in lengths), 0, threads
    ),
    st.lists(st.integers(1, 512), min_size=1, max_size=32),
    st.integers(1, 8),
)
samples = st.lists(st.tuples(shapes, st.integers(-5, 10**13)), max_size=40)


def model(**options: int) -> CostModel:
    return CostModel(CostProfile(), **{"memory_steps": 32, "warmup_steps": 0, **options})


def true_ns(shape: StepShape, scale: float = 1.0) -> int:
    k = shape.threads
    work = 2_000 * shape.num_seqs + 90_000 * shape.num_tokens + 60 * shape.sum_len_sq
    return int(scale * (150_000 + 100_000 * (k - 1) + work / k))


def shape_of(rng: random.Random, threads: int = 1, most: int = 20) -> StepShape:
    lengths = [rng.randrange(4, 10 * most) for _ in range(rng.randrange(1, most))]
    return StepShape(len(lengths), sum(lengths), sum(n * n for n in lengths), 0, threads)


def worst_error(m: CostModel, rng: random.Random, scale: float = 1.0) -> float:
    errors = []
    for _ in range(50):
        s = shape_of(rng, rng.choice([1, 2]))
        errors.append(abs(m.predict(s) / true_ns(s, scale) - 1))
    return max(errors)


@settings(max_examples=150)
@given(samples, shapes, st.integers(0, 100), st.integers(0, 10**5))
def test_predictions_are_positive_finite_and_never_fall_with_work(
    data: list[tuple[StepShape, int]], s: StepShape, seqs: int, tokens: int
) -> None:
    m = model()
    for shape, ns in data:
        m.learn(shape, ns)
    larger = s._replace(
        num_seqs=s.num_seqs + seqs,
        num_tokens=s.num_tokens + tokens,
        sum_len_sq=s.sum_len_sq + tokens * tokens,
    )
    assert 1 <= m.predict(s) <= m.predict(larger) <= MAX_NS
    assert all(c >= 0 for c in m.line(s.threads))
    assert m.error >= 0


@settings(max_examples=50)
@given(samples)
def test_the_same_samples_give_the_same_model(data: list[tuple[StepShape, int]]) -> None:
    a, b = model(), model()
    for shape, ns in data:
        a.learn(shape, ns)
        b.learn(shape, ns)
    assert a.line(1) == b.line(1)
    assert a.line(3) == b.line(3)


def test_it_finds_an_unknown_device() -> None:
    rng, m = random.Random(0), model()
    for _ in range(60):
        s = shape_of(rng, rng.choice([1, 2]))
        m.learn(s, int(true_ns(s) * rng.uniform(0.95, 1.05)))
    assert worst_error(m, rng) < 0.12
    assert m.error < 0.1


@pytest.mark.parametrize("scale", [3.0, 10.0, 0.2])
def test_a_changed_device_is_learned_in_a_second(scale: float) -> None:
    rng, m = random.Random(1), model()
    for _ in range(80):
        s = shape_of(rng, most=6)
        m.learn(s, true_ns(s))
    spent = 0
    while spent < 1_000_000_000:
        s = shape_of(rng, most=6)
        spent += true_ns(s, scale)
        m.learn(s, true_ns(s, scale))
    one = [shape_of(rng, most=6) for _ in range(30)]
    assert max(abs(m.predict(s) / true_ns(s, scale) - 1) for s in one) < 0.35


def test_one_stall_hardly_moves_it() -> None:
    rng, m = random.Random(2), model()
    for _ in range(40):
        s = shape_of(rng)
        m.learn(s, true_ns(s))
    s = shape_of(rng)
    before = m.predict(s)
    m.learn(s, true_ns(s) * 1000)
    assert m.predict(s) < 1.5 * before


def test_terms_without_evidence_follow_the_device() -> None:
    """Only one shape was ever seen, on one thread, 5x the profile: the rest scales too."""
    m = model()
    s = StepShape(8, 200, 6000)
    seed = m.predict(s)
    other = StepShape(1, 300, 90_000, 0, 2)
    expected = 5 * m.predict(other)
    for _ in range(20):
        m.learn(s, 5 * seed)
    assert m.predict(other) == pytest.approx(expected, rel=0.2)


def test_warmup_is_counted_per_thread_count_and_ignored() -> None:
    m = model(warmup_steps=2)
    s = StepShape(1, 10, 100)
    before = m.predict(s)
    m.learn(s, 10**11)
    m.learn(s, 10**11)
    assert not m.warm
    assert m.predict(s) == before
    m.learn(s._replace(threads=2), 10**11)
    assert m.num_samples == 0
    m.learn(s, 2 * before)
    assert m.warm
    assert m.predict(s) > before


def test_times_that_are_not_positive_are_ignored() -> None:
    m = model()
    m.learn(StepShape(1, 10, 100), 0)
    m.learn(StepShape(1, 10, 100), -7)
    assert m.num_samples == 0


def test_negative_profile_coefficients_count_as_zero() -> None:
    m = CostModel(CostProfile(step_ns=-5.0, token_ns=-1.0), memory_steps=8, warmup_steps=0)
    assert m.predict(StepShape(1, 100, 0)) == 5000  # the per-sequence term alone
