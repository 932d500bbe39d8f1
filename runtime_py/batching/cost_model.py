"""What a step will cost: a non-negative linear model, fitted while it is used.

The time of a step on k threads is modelled as::

    step + thread * (k - 1) + (seq * S + token * T + pair * sum_len_sq + kv * KV) / k

The profile gives first coefficients. What is learned is one multiplier per term:
the least-squares solution of the *relative* error over an exponentially forgotten
past, pulled towards one common factor ("this device is g times slower than the
profile"), and constrained to be non-negative by coordinate descent, warm-started
from the last solution. So a batch can never be predicted cheaper than a smaller one,
terms that the traffic does not exercise scale with the device, and a term whose
evidence is forgotten returns to the profile's proportions.
"""

from __future__ import annotations

from itertools import combinations_with_replacement, starmap
from operator import mul
from typing import NamedTuple

from runtime_py.batching.types import MAX_NS, CostProfile, StepShape

_TERMS = 6
_RIDGE = 0.02  # weight of the common factor, in samples
_SWEEPS = 3
_STREAK = 4  # same-sided misses in a row that mean the device changed
_STREAK_ERROR = 0.25
_FORGET = 0.05  # what a change leaves of the old evidence
_MAX_FACTOR = 1e6


class CostLine(NamedTuple):
    """The model at a fixed thread count: ``fixed + seq*S + token*T + pair*L2 + kv*KV`` ns."""

    fixed: float
    seq: float
    token: float
    pair: float
    kv: float


class CostModel:
    """Predicts `StepShape` → nanoseconds and learns from completed steps.

    Attributes:
        num_samples: steps learned from; warm-up steps do not count.
        error: decayed mean of ``|measured - predicted| / predicted``.
    """

    def __init__(self, profile: CostProfile, *, memory_steps: int, warmup_steps: int) -> None:
        self.num_samples = 0
        self.error = 0.0
        self._profile = tuple(max(float(c), 0.0) for c in profile)
        self._keep = 1.0 - 1.0 / memory_steps
        self._warmup_steps = warmup_steps
        self._seen: dict[int, int] = {}
        self._a = [0.0] * (_TERMS * (_TERMS + 1) // 2)  # upper triangle, row by row
        self._b = [0.0] * _TERMS
        self._common_num = 0.01
        self._common_den = 0.01
        self._factors = [1.0] * _TERMS
        self._streak = 0
        self._lines: dict[int, CostLine] = {}

    @property
    def warm(self) -> bool:
        """It has measured this device: its word is good enough to turn a request away."""
        return self.num_samples > 0

    def line(self, threads: int) -> CostLine:
        """The coefficients for steps on ``threads`` threads."""
        line = self._lines.get(threads)
        if line is None:
            c = [p * f for p, f in zip(self._profile, self._factors, strict=True)]
            line = CostLine(
                c[0] + c[1] * (threads - 1),
                c[2] / threads,
                c[3] / threads,
                c[4] / threads,
                c[5] / threads,
            )
            self._lines[threads] = line
        return line

    def predict(self, shape: StepShape) -> int:
        """Nanoseconds of a step of this shape: at least 1."""
        line = self.line(shape.threads)
        ns = line.fixed + line.seq * shape.num_seqs
        ns += line.token * shape.num_tokens
        ns += line.pair * shape.sum_len_sq
        ns += line.kv * shape.kv_tokens
        return int(min(max(ns, 1.0), float(MAX_NS)))

    def learn(self, shape: StepShape, device_ns: int) -> None:
        """Take in how long a step really took. Times that are not positive are ignored."""
        if device_ns <= 0:
            return
        seen = self._seen.get(shape.threads, 0)
        self._seen[shape.threads] = seen + 1
        if seen < self._warmup_steps:
            return
        predicted = float(self.predict(shape))
        # One stalled step must not move the model far; a lasting change moves it every time.
        reach = 4.0 if self.num_samples else _MAX_FACTOR
        measured = min(max(float(device_ns), predicted / reach), predicted * reach)
        miss = measured / predicted - 1.0
        self.error += (abs(miss) - self.error) / (8.0 if self.num_samples >= 8 else 2.0)
        self._watch(miss)
        self.num_samples += 1
        self._accumulate(shape, measured)
        self._solve()

    def _watch(self, miss: float) -> None:
        """Forget the past when the device has changed: several misses to the same side."""
        if miss > _STREAK_ERROR:
            self._streak = max(self._streak, 0) + 1
        elif miss < -_STREAK_ERROR / (1.0 + _STREAK_ERROR):
            self._streak = min(self._streak, 0) - 1
        else:
            self._streak = 0
        if self._streak in (_STREAK, -_STREAK):
            self._streak = 0
            self._decay(_FORGET)

    def _decay(self, keep: float) -> None:
        self._a = [a * keep for a in self._a]
        self._b = [b * keep for b in self._b]
        self._common_num *= keep
        self._common_den *= keep

    def _accumulate(self, shape: StepShape, measured: float) -> None:
        k, p = shape.threads, self._profile
        z = (
            p[0] / measured,
            p[1] * (k - 1) / measured,
            p[2] * (shape.num_seqs / k) / measured,
            p[3] * (shape.num_tokens / k) / measured,
            p[4] * (shape.sum_len_sq / k) / measured,
            p[5] * (shape.kv_tokens / k) / measured,
        )
        keep = self._keep
        squares = starmap(mul, combinations_with_replacement(z, 2))
        self._a = [a * keep + zz for a, zz in zip(self._a, squares, strict=True)]
        self._b = [b * keep + zi for b, zi in zip(self._b, z, strict=True)]
        # Not sum(): since Python 3.12 it compensates, and hosts would learn different things
        total = z[0] + z[1] + z[2] + z[3] + z[4] + z[5]
        self._common_num = self._common_num * keep + total
        self._common_den = self._common_den * keep + total * total

    def _solve(self) -> None:
        """Coordinate descent, written out: this runs in every step of every stream."""
        den = self._common_den
        common = self._common_num / den if den > 0.0 else 1.0
        common = min(max(common, 1.0 / _MAX_FACTOR), _MAX_FACTOR)
        b0, b1, b2, b3, b4, b5 = [b + _RIDGE * common for b in self._b]
        a00, a01, a02, a03, a04, a05, a11, a12, a13, a14, a15, *rest = self._a
        a22, a23, a24, a25, a33, a34, a35, a44, a45, a55 = rest
        a00, a11, a22 = a00 + _RIDGE, a11 + _RIDGE, a22 + _RIDGE
        a33, a44, a55 = a33 + _RIDGE, a44 + _RIDGE, a55 + _RIDGE
        f0, f1, f2, f3, f4, f5 = self._factors
        # A change of the common factor is taken in one stroke, the sweeps do the rest.
        for _ in range(_SWEEPS):
            f0 = _clamp((b0 - a01 * f1 - a02 * f2 - a03 * f3 - a04 * f4 - a05 * f5) / a00)
            f1 = _clamp((b1 - a01 * f0 - a12 * f2 - a13 * f3 - a14 * f4 - a15 * f5) / a11)
            f2 = _clamp((b2 - a02 * f0 - a12 * f1 - a23 * f3 - a24 * f4 - a25 * f5) / a22)
            f3 = _clamp((b3 - a03 * f0 - a13 * f1 - a23 * f2 - a34 * f4 - a35 * f5) / a33)
            f4 = _clamp((b4 - a04 * f0 - a14 * f1 - a24 * f2 - a34 * f3 - a45 * f5) / a44)
            f5 = _clamp((b5 - a05 * f0 - a15 * f1 - a25 * f2 - a35 * f3 - a45 * f4) / a55)
        self._factors = [f0, f1, f2, f3, f4, f5]
        self._lines = {}


def _clamp(factor: float) -> float:
    return 0.0 if factor < 0.0 else _MAX_FACTOR if factor > _MAX_FACTOR else factor
