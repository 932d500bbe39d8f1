"""A row of logits to a token, step by step as docs/design.md 7.2 writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.executors.base import Sampled, SamplingRow

Floats = npt.NDArray[np.float32]

_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_WEIGHT_UNIT = 2.0**-32
NOT_FINITE = Sampled(-1, float("nan"))
"""What a row of logits with a NaN or an infinity gives."""


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK64
    return z ^ z >> 31


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that is a function of its arguments: 53 bits of SplitMix64.

    Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    The seed is mixed once, so that the streams of close seeds have nothing in common.
    """
    state = _mix(seed + _GOLDEN & _MASK64) + (position + 1) * _GOLDEN
    return float(_mix(state & _MASK64) >> 11) * 2.0**-53


def sample(logits: Floats, row: SamplingRow) -> Sampled:
    """The token that ``row`` takes from ``logits``, f32 [vocabulary].

    Source of the cuts: Fan et al. 2018 (top-k), Holtzman et al. 2020 (top-p), Nguyen et
    al. 2024 (min-p).
    """
    if not np.isfinite(logits).all():
        return NOT_FINITE
    adjusted, allowed = _adjusted(logits, row)
    order = _ranked(adjusted, allowed, row)
    top = adjusted[order[0]]
    total = np.sum(np.exp((adjusted[allowed] - top).astype(np.float64)))

    def logprob(token: int) -> float:
        return float(np.float64(adjusted[token] - top) - np.log(total))

    token = int(order[0]) if row.temperature == 0 else _drawn(adjusted[order], order, row)
    best = tuple((int(i), logprob(int(i))) for i in order[: row.top_logprobs])
    return Sampled(token, logprob(token), best)


def _adjusted(logits: Floats, row: SamplingRow) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """The logits after penalties and bias, and which tokens the mask allows."""
    out = logits.copy()
    repetition, presence, frequency = (
        np.float32(v) for v in (row.repetition_penalty, row.presence_penalty, row.frequency_penalty)
    )
    for token, _, generated in row.penalized:
        logit = out[token]
        logit = logit / repetition if logit > 0 else logit * repetition
        if generated:
            logit = logit - presence
            logit = logit - frequency * np.float32(generated)
        out[token] = logit
    for token, bias in row.bias:
        out[token] += np.float32(bias)
    allowed = np.ones(len(out), np.bool_)
    if row.mask is not None:
        bits = np.unpackbits(np.frombuffer(row.mask, np.uint8), bitorder="little")
        allowed = bits[: len(out)].astype(np.bool_)
    return out, allowed


def _ranked(
    adjusted: Floats, allowed: npt.NDArray[np.bool_], row: SamplingRow
) -> npt.NDArray[np.intp]:
    """Allowed ids by descending logit, equal ones by ascending id; as many as are needed."""
    ids = np.flatnonzero(allowed)
    if row.temperature == 0:
        need = max(1, row.top_logprobs)
    else:
        need = max(row.top_k, row.top_logprobs) if row.top_k else len(ids)
    if need < len(ids):  # leave out what ranks below the last one that is needed
        values = adjusted[ids]
        ids = ids[values >= np.partition(values, len(ids) - need)[len(ids) - need]]
    return ids[np.argsort(-adjusted[ids], kind="stable")]


def _drawn(ranked: Floats, order: npt.NDArray[np.intp], row: SamplingRow) -> int:
    """The token that the random number falls on, among the candidates the cuts leave."""
    exponents = (ranked - ranked[0]) / np.float32(row.temperature)
    weights: npt.NDArray[Any] = np.exp(exponents.astype(np.float64))
    # Multiples of one unit: their sums are exact, whatever the order.
    weights = np.rint(weights / _WEIGHT_UNIT) * _WEIGHT_UNIT
    if row.top_k:
        weights = weights[: row.top_k]
    if row.top_p < 1:
        sums = np.cumsum(weights)
        reached = sums >= np.float64(np.float32(row.top_p)) * sums[-1]
        weights = weights[: int(np.argmax(reached)) + 1]
    if row.min_p > 0:
        weights = weights[: np.count_nonzero(weights >= np.float64(np.float32(row.min_p)))]
    sums = np.cumsum(weights)
    past = sums > uniform(row.seed, row.position) * sums[-1]
    at = int(np.argmax(past)) if past.any() else int(np.count_nonzero(weights)) - 1
    return int(order[at])
