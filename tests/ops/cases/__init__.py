"""The op-case table: what every backend must compute, op by op.

A case is a program of a few ops with its weights, one step, and the output that a
formula of its own expects. The families are files; `all_cases` gathers them by name.
"""

from functools import cache

from tests.ops.cases.builder import Builder, Case, make_step, normal


@cache
def all_cases() -> dict[str, Case]:
    """Every case by its name."""
    # Imported here: the formulas use torch, which takes seconds, and not every user of
    # this package needs the cases.
    from tests.ops.cases import attention, elementwise, hostile, linear, tokens

    found: dict[str, Case] = {}
    for family in (tokens, elementwise, linear, attention, hostile):
        for case in family.cases():
            assert case.name not in found, f"two cases are called {case.name}"
            found[case.name] = case
    return found


__all__ = ["Builder", "Case", "all_cases", "make_step", "normal"]
