"""How long texts, prompts and answers are."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lengths:
    """A log-normal distribution of whole token counts, clipped.

    Log-normal is what corpora of sentences and logs of prompts look like: most are short, a
    few are long.

    Attributes:
        median: of the distribution.
        sigma: standard deviation of the logarithm.
        low, high: the clip.
    """

    median: float
    sigma: float
    low: int
    high: int

    def draw(self, rng: random.Random) -> int:
        n = round(self.median * math.exp(rng.gauss(0.0, self.sigma)))
        return min(max(n, self.low), self.high)


def sentences(max_tokens: int) -> Lengths:
    """English sentences as an embedding model sees them: median 25 tokens, mean 32."""
    return Lengths(25.0, 0.72, min(4, max_tokens), max_tokens)


def prompts(max_context: int) -> Lengths:
    """Chat prompts: median 90 tokens, a few of a third of the context."""
    return Lengths(90.0, 1.0, 4, max(max_context // 3, 4))


def answers(max_context: int) -> Lengths:
    """Chat answers: median 40 tokens."""
    return Lengths(40.0, 0.8, 2, max(max_context // 6, 2))
