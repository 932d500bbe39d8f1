"""The table of rules: operator -> how it acts on the data path."""

from __future__ import annotations

from collections.abc import Callable

from toolchain.lowering.context import Rule

RULES: dict[tuple[str, str], Rule] = {}


def rule(*ops: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register the decorated function for ``ops`` of ``domain``.

    A rule gets the context and the node and returns one abstract value, or a list with
    one per output; it raises `NotLowered` with what it expected.
    """

    def register(function: Rule) -> Rule:
        for op in ops:
            RULES[domain, op] = function
        return function

    return register
