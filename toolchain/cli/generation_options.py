"""Options that `toolchain generate` and `toolchain chat` share: how tokens are chosen."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from runtime_py.generation.options import generate_options

_PANEL = "Sampling"

Temperature = Annotated[
    float,
    typer.Option(
        "--temperature", "-t", min=0.0, help="0: the likeliest token.", rich_help_panel=_PANEL
    ),
]
TopK = Annotated[
    int, typer.Option(min=0, help="Sample from so many tokens; 0: all.", rich_help_panel=_PANEL)
]
TopP = Annotated[
    float,
    typer.Option(help="Sample from the likeliest tokens of this mass.", rich_help_panel=_PANEL),
]
MinP = Annotated[
    float,
    typer.Option(
        help="Drop tokens below this part of the likeliest's probability.", rich_help_panel=_PANEL
    ),
]
RepetitionPenalty = Annotated[
    float, typer.Option(help="Above 1: less of prompt and answer again.", rich_help_panel=_PANEL)
]
PresencePenalty = Annotated[
    float,
    typer.Option(help="Taken from the logits of the answer's tokens.", rich_help_panel=_PANEL),
]
FrequencyPenalty = Annotated[
    float, typer.Option(help="The same, once per occurrence.", rich_help_panel=_PANEL)
]
Seed = Annotated[int | None, typer.Option(help="Repeats a sampled text.", rich_help_panel=_PANEL)]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        help=r"Ends a text, and is not in it; \n, \t, \r and \\ are understood. May be repeated.",
        rich_help_panel=_PANEL,
    ),
]


def sampling(
    max_tokens: int | None,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    presence_penalty: float,
    frequency_penalty: float,
    seed: int | None,
    stop: Sequence[str] | None,
) -> dict[str, Any]:
    """Keyword arguments of `Model.generate`, those left at their defaults not included."""
    options = {
        "max_tokens": max_tokens,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "min_p": min_p,
        "repetition_penalty": repetition_penalty,
        "presence_penalty": presence_penalty,
        "frequency_penalty": frequency_penalty,
        "seed": seed,
        "stop": [unescaped(s) for s in stop] if stop else None,
    }
    return {name: value for name, value in options.items() if value != DEFAULTS[name]}


_NAMES = (
    *("max_tokens", "temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "seed", "stop"),
)
_PARAMETERS = inspect.signature(generate_options).parameters
DEFAULTS: dict[str, Any] = {name: _PARAMETERS[name].default for name in _NAMES}

_CHARACTERS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def unescaped(text: str) -> str:
    r"""``text`` with ``\n``, ``\t``, ``\r`` and ``\\`` replaced by what they stand for."""
    out, rest = [], iter(text)
    for char in rest:
        if char != "\\":
            out.append(char)
            continue
        after = next(rest, "")
        out.append(_CHARACTERS.get(after, "\\" + after))
    return "".join(out)
