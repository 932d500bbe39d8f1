"""When requests arrive: seeded point processes, in nanoseconds from 0.

All have the mean rate that is asked for over their duration, so that a workload's load means
the same whatever its shape.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator

NS_PER_S = 1_000_000_000


def poisson(rate: float, duration_s: float, rng: random.Random) -> Iterator[int]:
    """Independent arrivals at ``rate`` per second."""
    t = rng.expovariate(rate)
    while t < duration_s:
        yield int(t * NS_PER_S)
        t += rng.expovariate(rate)


def mmpp(
    rate: float,
    duration_s: float,
    rng: random.Random,
    *,
    factor: float = 10.0,
    calm_s: float = 9.0,
    burst_s: float = 1.0,
) -> Iterator[int]:
    """Bursts: a Poisson process that switches between two rates (Markov-modulated).

    Args:
        factor: the rate in a burst over that between bursts.
        calm_s, burst_s: mean lengths of both states, exponentially distributed.
    """
    calm_rate = rate * (calm_s + burst_s) / (calm_s + factor * burst_s)
    t, bursting = 0.0, False
    while t < duration_s:
        end = t + rng.expovariate(1.0 / (burst_s if bursting else calm_s))
        here = calm_rate * (factor if bursting else 1.0)
        t += rng.expovariate(here)
        while t < min(end, duration_s):
            yield int(t * NS_PER_S)
            t += rng.expovariate(here)
        t, bursting = end, not bursting


def _modulated(
    rate_at: Callable[[float], float], peak: float, duration_s: float, rng: random.Random
) -> Iterator[int]:
    """A Poisson process with a rate that varies: thinning (Lewis and Shedler 1979)."""
    t = rng.expovariate(peak)
    while t < duration_s:
        if rng.random() * peak < rate_at(t):
            yield int(t * NS_PER_S)
        t += rng.expovariate(peak)


def diurnal(
    rate: float, duration_s: float, rng: random.Random, *, depth: float = 0.8, days: float = 2.0
) -> Iterator[int]:
    """A rate that swings like that of days: up and down by ``depth``, ``days`` times."""
    omega = 2 * math.pi * days / duration_s

    def rate_at(t: float) -> float:
        return rate * (1.0 - depth * math.cos(omega * t))

    return _modulated(rate_at, rate * (1.0 + depth), duration_s, rng)


def flash_crowd(
    rate: float,
    duration_s: float,
    rng: random.Random,
    *,
    factor: float = 10.0,
    at: float = 1 / 3,
    crowd_s: float = 10.0,
) -> Iterator[int]:
    """A steady rate, ``factor`` times as high for ``crowd_s`` seconds.

    Unlike the others, its mean is above ``rate``: that is the rate of quiet times.

    Args:
        at: when it begins, as a part of the duration.
    """
    start = at * duration_s

    def rate_at(t: float) -> float:
        return rate * (factor if start <= t < start + crowd_s else 1.0)

    return _modulated(rate_at, rate * factor, duration_s, rng)


def every(period_s: float, duration_s: float) -> Iterator[int]:
    """Like clockwork, the first after half a period."""
    t = period_s / 2
    while t < duration_s:
        yield int(t * NS_PER_S)
        t += period_s
