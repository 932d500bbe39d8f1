"""The op-case table: what every backend must compute, op by op.

A case is a program of a few ops with its weights, one step (or for a decoder several), and
the output that a formula of its own expects. The families are files; `all_cases`,
`generation_cases` and `steps_cases` gather them by name.
"""

from collections.abc import Iterable
from functools import cache
from typing import TypeVar

from tests.ops.cases.builder import Builder, Case, make_step, normal
from tests.ops.cases.steps import StepsCase

# The families are imported where they are gathered: their formulas use torch, which takes
# seconds, and not every user of this package needs the cases.

_C = TypeVar("_C", Case, StepsCase)


def _by_name(*families: Iterable[_C]) -> dict[str, _C]:
    found: dict[str, _C] = {}
    for family in families:
        for case in family:
            assert case.name not in found, f"two cases are called {case.name}"
            found[case.name] = case
    return found


@cache
def all_cases() -> dict[str, Case]:
    """Every case of one step that encoders need."""
    from tests.ops.cases import attention, elementwise, hostile, linear, tokens

    return _by_name(*(f.cases() for f in (tokens, elementwise, linear, attention, hostile)))


@cache
def generation_cases() -> dict[str, Case]:
    """Every case of one step that only decoders need."""
    from tests.ops.cases import elementwise, linear, tokens

    return _by_name(*(f.generation_cases() for f in (tokens, elementwise, linear)))


@cache
def steps_cases() -> dict[str, StepsCase]:
    """Every case of a decoder's steps."""
    from tests.ops.cases import cached, sampling

    return _by_name(cached.cases(), sampling.cases())


__all__ = [
    "Builder",
    "Case",
    "StepsCase",
    "all_cases",
    "generation_cases",
    "make_step",
    "normal",
    "steps_cases",
]
