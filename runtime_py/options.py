"""Checking the options of a call against the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypedDict

from runtime_py.batching import TrafficClass
from runtime_py.errors import InvalidInput, InvalidType
from runtime_py.info import ModelInfo
from runtime_py.results import DType, VectorFormat

MAX_TARGET_MS = 10**9
MAX_DEADLINE_MS = 10**9
Truncate = Literal["end", "error"]
Traffic = Literal["latency", "throughput"]


class EmbedOptions(TypedDict, total=False):
    """Keyword arguments of `Model.embed`, which says what they mean."""

    prompt_name: str | None
    prompt: str | None
    dimensions: int | None
    normalize: bool | None
    dtype: DType
    truncate: Truncate
    traffic: Traffic
    deadline_ms: float | None
    latency_target_ms: float | None
    tenant: str


@dataclass(frozen=True, slots=True)
class EncodeOptions:
    """What a call asks for, checked.

    Attributes:
        prompt: text put before every input.
        exclude_prompt: pooling leaves the prompt's tokens out.
    """

    prompt: str
    exclude_prompt: bool
    truncate: Truncate
    traffic: TrafficClass
    deadline_ns: int
    latency_target_ns: int
    tenant: str


def encode_options(
    info: ModelInfo,
    prompt_name: str | None,
    prompt: str | None,
    truncate: Truncate,
    traffic: Traffic,
    deadline_ns: int,
    latency_target_ms: float | None = None,
    tenant: str = "",
) -> EncodeOptions:
    """What `EncodeOptions` a call's options mean for this model.

    Raises:
        InvalidInput, InvalidType: an option is outside its range; the message names it.
    """
    _check_choice("truncate", truncate, ("end", "error"))
    kind = traffic_class(traffic)
    return EncodeOptions(
        _prompt(info, prompt_name, prompt),
        not info.include_prompt,
        truncate,
        kind,
        deadline_ns,
        target_ns("latency_target_ms", latency_target_ms),
        checked_tenant(tenant),
    )


def traffic_class(traffic: Traffic) -> TrafficClass:
    """The class that a call names.

    Raises:
        InvalidInput: there is no such class.
    """
    _check_choice("traffic", traffic, ("latency", "throughput"))
    return TrafficClass.LATENCY if traffic == "latency" else TrafficClass.THROUGHPUT


def deadline_span_ns(deadline_ms: float | None) -> int:
    """How long a call may take, in nanoseconds; -1 = as long as it likes.

    Raises:
        InvalidInput: it is no number of milliseconds above 0 and up to `MAX_DEADLINE_MS`.
    """
    if deadline_ms is None:
        return -1
    number = isinstance(deadline_ms, int | float) and not isinstance(deadline_ms, bool)
    if not number or not 0 < deadline_ms <= MAX_DEADLINE_MS:
        raise InvalidInput(
            f"deadline_ms is {deadline_ms!r}, expected a number above 0 and up to {MAX_DEADLINE_MS}"
        )
    return int(deadline_ms * 1e6)


def target_ns(name: str, target_ms: float | None) -> int:
    """A target in nanoseconds; -1 = the model's.

    Raises:
        InvalidInput: it is no number of milliseconds from 0 to `MAX_TARGET_MS`.
    """
    if target_ms is None:
        return -1
    number = isinstance(target_ms, int | float) and not isinstance(target_ms, bool)
    if not number or not 0 <= target_ms <= MAX_TARGET_MS:
        raise InvalidInput(
            f"{name} is {target_ms!r}, expected a number from 0 to {MAX_TARGET_MS}, or None"
        )
    return int(target_ms * 1e6)


def checked_tenant(tenant: str) -> str:
    """``tenant``, which is a str.

    Raises:
        InvalidType: it is not.
    """
    if not isinstance(tenant, str):
        raise InvalidType(f"tenant is {type(tenant).__name__}, expected str")
    return tenant


def vector_format(
    info: ModelInfo, dimensions: int | None, normalize: bool | None, dtype: DType
) -> VectorFormat:
    """What `VectorFormat` a call's options mean for this model.

    Raises:
        InvalidInput, InvalidType: an option is outside its range; the message names it.
    """
    width = info.dimensions
    _check_choice("dtype", dtype, ("float32", "float16"))
    if dimensions is None:
        dimensions = width
    elif isinstance(dimensions, bool) or not isinstance(dimensions, int):
        raise InvalidType(f"dimensions is {type(dimensions).__name__}, expected int")
    elif not 1 <= dimensions <= width:
        raise InvalidInput(f"dimensions is {dimensions}, expected 1 to {width}")
    if normalize is False and info.normalized:
        raise InvalidInput(
            "normalize is False, but the model's own last step normalises; "
            "export it without that step"
        )
    cut = info.normalized and dimensions < width
    again = cut or (bool(normalize) and not info.normalized)
    return VectorFormat(width, dimensions, again, dtype)


def _prompt(info: ModelInfo, name: str | None, prompt: str | None) -> str:
    if prompt is not None:
        if name is not None:
            raise InvalidInput("prompt and prompt_name are both set, expected one of them")
        if not isinstance(prompt, str):
            raise InvalidType(f"prompt is {type(prompt).__name__}, expected str")
        return prompt
    if name is None:
        name = info.default_prompt_name
        if name is None:
            return ""
    if not isinstance(name, str) or name not in info.prompts:
        raise InvalidInput(
            f"prompt_name is {name!r}, the model has {sorted(info.prompts)}; "
            "pass the text itself as prompt="
        )
    return info.prompts[name]


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise InvalidInput(f"{name} is {value!r}, expected one of {list(choices)}")
