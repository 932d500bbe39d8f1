"""The arrival rate: its windows, and a jump that the short one notices."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from runtime_py.batching.arrival import ArrivalRate, SlidingCount

S = 1_000_000_000


def test_a_steady_stream_is_measured_within_one_arrival() -> None:
    rate = ArrivalRate(S)
    for i in range(500):
        rate.add(1, i * S // 100)
        if i >= 200:
            assert 99 <= rate.in_window(i * S // 100) <= 102
    assert 49 <= rate.expected(S // 2, 5 * S) <= 51


def test_poisson_rate_and_a_jump_are_followed() -> None:
    rng, rate, now = random.Random(3), ArrivalRate(S), 0
    while now < 20 * S:
        now += int(rng.expovariate(50) * S)
        rate.add(1, now)
    assert 25 <= rate.in_window(now) <= 80
    until = now + 2 * S
    while now < until:
        now += int(rng.expovariate(500) * S)
        rate.add(1, now)
    assert 400 <= rate.in_window(now) <= 600


def test_silence_decays_to_zero_in_two_windows() -> None:
    rate = ArrivalRate(S)
    rate.add(10, S // 2)
    assert rate.in_window(S // 2) == 10
    assert rate.in_window(S + S // 2) == 5
    assert rate.in_window(2 * S) == 0
    assert rate.in_window(100 * S) == 0
    assert rate.expected(S, 100 * S) == 0
    assert rate.expected(-5, 100 * S) == 0


@given(st.lists(st.tuples(st.integers(0, 3 * S), st.integers(1, 1000)), max_size=50))
def test_the_estimate_lies_between_nothing_and_two_windows(
    gaps: list[tuple[int, int]],
) -> None:
    rate, now, log = SlidingCount(S), 0, []
    for gap, count in gaps:
        now += gap
        rate.add(count, now)
        log.append((now, count))
        recent = sum(c for at, c in log if at > now - 2 * S)
        assert 0 <= rate.count(now) <= recent
        assert rate.count(now) >= sum(c for at, c in log if at // S == now // S)


def test_a_tenfold_jump_is_seen_in_an_eighth_of_the_window() -> None:
    rng, rate, now = random.Random(4), ArrivalRate(S), 0
    while now < 5 * S:
        now += int(rng.expovariate(50) * S)
        rate.add(1, now)
    jump = now
    while now < jump + S // 4:
        now += int(rng.expovariate(500) * S)
        rate.add(1, now)
    assert 350 <= rate.in_window(now) <= 650
    assert rate.in_window(now + S // 4) <= 10  # and so is its end


def test_a_list_of_many_texts_is_no_jump() -> None:
    rate = ArrivalRate(S)
    rate.add(100, S)
    for _ in range(50):
        rate.add(1, S + 7)
    assert rate.in_window(S + 8) == 150
