"""Small lives of the core, made from a seed: together they reach every policy branch.

A family is a function of (seed, lines) that drives a world; what the core was told and
decided is in ``lines`` afterwards. Families named after a field report are its regression
traces. `tests.golden.generate` writes them down, hosts in every language replay them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.golden import field_reports, lives, policies
from tests.golden.family import FAMILIES

MODULES = (lives, policies, field_reports)  # importing them registers their families


def names() -> Sequence[str]:
    """Every trace, as ``family-seed``."""
    return [f"{name}-{seed:02}" for name, (_, count) in FAMILIES.items() for seed in range(count)]


def make(name: str) -> list[str]:
    """The lines of one trace."""
    kind, _, seed = name.rpartition("-")
    lines: list[str] = []
    FAMILIES[kind][0](int(seed), lines)
    return lines
