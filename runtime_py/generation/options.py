"""What a caller asks of a generation, checked before any work."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict

from runtime_py.errors import InvalidInput, InvalidType

LogitsMask = Callable[[Sequence[int]], bytes | None]
"""Ids generated so far -> which tokens may follow: bit i of ceil(vocab / 32) little-endian
u32 allows token i; None allows all."""

MAX_SAMPLES = 128
MAX_STOPS = 64
MAX_STOP_CHARS = 1024
MAX_BIASES = 4096
MAX_TOP_LOGPROBS = 20
MIN_TEMPERATURE = 1e-6


class SamplingArguments(TypedDict, total=False):
    """Keyword arguments of `generate_options`; `Model.generate` says what they mean."""

    max_tokens: int | None
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: Mapping[int, float] | None
    logits_mask: LogitsMask | None
    logprobs: bool | int
    n: int
    seed: int | None
    stop: str | Sequence[str] | None
    stop_token_ids: Iterable[int]
    ignore_eos: bool


class GenerateArguments(SamplingArguments, total=False):
    """Keyword arguments of `Model.generate`: also when and for whom."""

    traffic: Literal["latency", "throughput"]
    deadline_ms: float | None
    ttft_target_ms: float | None
    tpot_target_ms: float | None
    tenant: str
    cache_salt: str


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """Checked options; see `Model.generate` for what they mean.

    Attributes:
        stop: stop strings.
        top_logprobs: -1 = no log-probabilities at all.
        seed: 64 bits; sample i uses ``seed + i``.
    """

    max_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    logits_mask: LogitsMask | None
    top_logprobs: int
    n: int
    seed: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]
    ignore_eos: bool


def generate_options(
    *,
    vocab_size: int,
    max_context: int,
    max_tokens: int | None = None,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
    logits_mask: LogitsMask | None = None,
    logprobs: bool | int = False,
    n: int = 1,
    seed: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Iterable[int] = (),
    ignore_eos: bool = False,
) -> GenerateOptions:
    """`GenerateOptions` of a call.

    Raises:
        InvalidInput, InvalidType: an option is outside its range; the message names it.
    """
    if max_tokens is None:
        max_tokens = max_context
    if logits_mask is not None and not callable(logits_mask):
        raise InvalidType(f"logits_mask is {type(logits_mask).__name__}, expected a function")
    if not isinstance(ignore_eos, bool):
        raise InvalidType(f"ignore_eos is {type(ignore_eos).__name__}, expected bool")
    return GenerateOptions(
        max_tokens=_int("max_tokens", max_tokens, 1, max_context),
        temperature=_temperature(temperature),
        top_k=_int("top_k", top_k, 0, vocab_size),
        top_p=_float("top_p", top_p, 0.0, 1.0, open_low=True),
        min_p=_float("min_p", min_p, 0.0, 1.0),
        repetition_penalty=_float("repetition_penalty", repetition_penalty, 1e-3, 100.0),
        presence_penalty=_float("presence_penalty", presence_penalty, -100.0, 100.0),
        frequency_penalty=_float("frequency_penalty", frequency_penalty, -100.0, 100.0),
        logit_bias=_bias(logit_bias, vocab_size),
        logits_mask=logits_mask,
        top_logprobs=_logprobs(logprobs),
        n=_int("n", n, 1, MAX_SAMPLES),
        seed=secrets.randbits(64) if seed is None else _int("seed", seed, 0, 2**64 - 1),
        stop=_stops(stop),
        stop_token_ids=_ids("stop_token_ids", stop_token_ids, vocab_size),
        ignore_eos=ignore_eos,
    )


def _int(name: str, value: object, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidType(f"{name} is {type(value).__name__}, expected int")
    if not low <= value <= high:
        raise InvalidInput(f"{name} is {value}, expected {low} to {high}")
    return value


def _float(name: str, value: object, low: float, high: float, open_low: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidType(f"{name} is {type(value).__name__}, expected a number")
    if not (low <= value <= high) or (open_low and value == low) or not math.isfinite(value):
        above = "above " if open_low else ""
        raise InvalidInput(f"{name} is {value}, expected {above}{low:g} to {high:g}")
    return float(value)


def _temperature(value: object) -> float:
    """Backends divide by it, in f32."""
    temperature = _float("temperature", value, 0.0, 100.0)
    if 0 < temperature < MIN_TEMPERATURE:
        raise InvalidInput(
            f"temperature is {temperature}, expected 0, or {MIN_TEMPERATURE:g} to 100"
        )
    return temperature


def _logprobs(value: bool | int) -> int:
    if value is False:
        return -1
    if value is True:
        return 0
    return _int("logprobs", value, 0, MAX_TOP_LOGPROBS)


def _bias(bias: Mapping[int, float] | None, vocab_size: int) -> tuple[tuple[int, float], ...]:
    if bias is None:
        return ()
    if not isinstance(bias, Mapping):
        raise InvalidType(f"logit_bias is {type(bias).__name__}, expected a dict of id: number")
    if len(bias) > MAX_BIASES:
        raise InvalidInput(f"logit_bias has {len(bias)} entries, expected at most {MAX_BIASES}")
    pairs = [
        (
            _int("a token id in logit_bias", token, 0, vocab_size - 1),
            _float(f"logit_bias[{token}]", value, -1e6, 1e6),
        )
        for token, value in bias.items()
    ]
    return tuple(sorted(pairs))


def _ids(name: str, ids: object, vocab_size: int) -> tuple[int, ...]:
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise InvalidType(f"{name} is {type(ids).__name__}, expected a list of token ids")
    checked = [_int(f"{name}[{i}]", x, 0, vocab_size - 1) for i, x in enumerate(ids)]
    return tuple(sorted(set(checked)))


def _stops(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    if isinstance(stop, str):
        stop = [stop]
    if isinstance(stop, bytes | Mapping) or not isinstance(stop, Sequence):
        raise InvalidType(f"stop is {type(stop).__name__}, expected a str or a list of str")
    if len(stop) > MAX_STOPS:
        raise InvalidInput(f"stop has {len(stop)} strings, expected at most {MAX_STOPS}")
    for i, text in enumerate(stop):
        if not isinstance(text, str):
            raise InvalidType(f"stop[{i}] is {type(text).__name__}, expected str")
        if not 0 < len(text) <= MAX_STOP_CHARS:
            raise InvalidInput(
                f"stop[{i}] has {len(text)} characters, expected 1 to {MAX_STOP_CHARS}"
            )
    return tuple(dict.fromkeys(stop))
