"""The simulated device: how long a step takes, with everything that real ones do.

Noise, a slow first call, throttling when it gets hot, stalls (a garbage collection, another
process) and lasting changes of speed. Everything is drawn from one seed, and what befalls
the device at a moment does not depend on what it runs, so policies are compared fairly.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime_py.batching import StepShape
from toolchain.simulate.profile import DeviceProfile

NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class DeviceBehaviour:
    """How the device departs from its profile.

    Attributes:
        noise: standard deviation of a step's time relative to its mean; None = the profile's.
        warmup_steps: first steps of each lane that take ``warmup_factor`` times as long
            (compilation, cold caches).
        warmup_factor: see there.
        thermal_slowdown: how many times slower it is when it has been busy for long; 1 = never.
        thermal_seconds: time constant with which it heats up and cools down.
        stall_every_s: mean time between stalls; 0 = none.
        stall_ms: mean length of one.
        changes: (second, factor): from then on a step takes factor times its profile.
    """

    noise: float | None = None
    warmup_steps: int = 1
    warmup_factor: float = 3.0
    thermal_slowdown: float = 1.0
    thermal_seconds: float = 30.0
    stall_every_s: float = 0.0
    stall_ms: float = 50.0
    changes: Sequence[tuple[float, float]] = field(default=())


class Device:
    """Says how long a step takes that starts now.

    Args:
        profiles: by lane.
        behaviour: how it departs from them.
        seed: of everything random.
    """

    def __init__(
        self, profiles: Mapping[str, DeviceProfile], behaviour: DeviceBehaviour, seed: int
    ) -> None:
        self._profiles = profiles
        self._behaviour = behaviour
        self._noise = random.Random(f"noise {seed}")
        self._stalls = _stalls(behaviour, seed)
        self._change_at = [int(s * NS_PER_S) for s, _ in sorted(behaviour.changes)]
        self._factors = [1.0, *(f for _, f in sorted(behaviour.changes))]
        self._runs: dict[str, int] = {}
        self._heat = 0.0
        self._heat_at_ns = 0

    def run_ns(self, lane: str, shape: StepShape, start_ns: int) -> int:
        """How long the step takes, at least 1 ns."""
        profile, behaviour = self._profiles[lane], self._behaviour
        ns = profile.step_ns(shape)
        sigma = profile.noise if behaviour.noise is None else behaviour.noise
        if sigma > 0.0:
            # Log-normal: never negative, with the mean of the profile
            ns *= math.exp(self._noise.gauss(-sigma * sigma / 2, sigma))
        runs = self._runs.get(lane, 0)
        if runs < behaviour.warmup_steps:
            self._runs[lane] = runs + 1
            ns *= behaviour.warmup_factor
        if self._change_at:
            ns *= self._factors[bisect.bisect_right(self._change_at, start_ns)]
        if behaviour.thermal_slowdown > 1.0:
            ns *= self._throttle(start_ns, ns)
        if behaviour.stall_every_s > 0.0:
            ns = self._stalls.through(start_ns, ns)
        return max(int(ns), 1)

    def _throttle(self, start_ns: int, ns: float) -> float:
        """First-order heating: towards 1 while a step runs, towards 0 between steps."""
        tau = self._behaviour.thermal_seconds * NS_PER_S
        idle_ns = max(start_ns - self._heat_at_ns, 0)
        heat = self._heat * math.exp(-idle_ns / tau)
        factor = 1.0 + (self._behaviour.thermal_slowdown - 1.0) * heat
        self._heat = 1.0 - (1.0 - heat) * math.exp(-ns * factor / tau)
        self._heat_at_ns = start_ns + int(ns * factor)
        return factor


class _Stalls:
    """Moments at which nothing runs, made up as time goes by. Steps start in order."""

    def __init__(self, every_ns: float, mean_ns: float, rng: random.Random) -> None:
        self._every_ns, self._mean_ns, self._rng = every_ns, mean_ns, rng
        self._end_ns = 0.0  # of the last one that is known
        self._known: deque[tuple[float, float]] = deque()

    def through(self, start_ns: int, ns: float) -> float:
        """How long ``ns`` of work takes that starts at ``start_ns``."""
        known = self._known
        while known and sum(known[0]) <= start_ns:
            known.popleft()
        end, i = start_ns + ns, 0
        while True:
            if i == len(known):
                at = self._end_ns + self._rng.expovariate(1.0 / self._every_ns)
                known.append((at, self._rng.expovariate(1.0 / self._mean_ns)))
                self._end_ns = sum(known[-1])
            at, length = known[i]
            if at >= end:
                return end - start_ns
            end += max(at + length - max(start_ns, at), 0.0)
            i += 1


def _stalls(behaviour: DeviceBehaviour, seed: int) -> _Stalls:
    rng = random.Random(f"stalls {seed}")
    return _Stalls(behaviour.stall_every_s * NS_PER_S, behaviour.stall_ms * 1e6, rng)
