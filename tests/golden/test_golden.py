"""CPython replays every golden trace, and makes them from the same commit again."""

from __future__ import annotations

import re

import pytest

from runtime_py.batching import replay
from tests.golden.generate import TRACES, load
from tests.golden.scenarios import make, names

GOLDEN = load()
FIELD_REPORTS = ("C1", "C2", "C3", "C5", "C6", "C8", "C10", "C11", "C13", "C14", "C15")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_decisions_are_the_recorded_ones(name: str) -> None:
    lines, digest = GOLDEN[name]
    assert replay(lines) == digest


def test_there_are_enough_small_ones_of_every_family() -> None:
    assert list(GOLDEN) == list(names())
    assert len(GOLDEN) >= 200
    assert TRACES.stat().st_size < 2_000_000
    assert max(len(lines) for lines, _ in GOLDEN.values()) < 1000
    assert len({digest for _, digest in GOLDEN.values()}) == len(GOLDEN)


@pytest.mark.parametrize("row", FIELD_REPORTS)
def test_every_field_report_has_its_traces(row: str) -> None:
    assert any(re.match(rf"{row}_", name) for name in GOLDEN)


def test_the_generator_makes_what_is_on_disk() -> None:
    for name in list(GOLDEN)[::9]:
        assert make(name) == GOLDEN[name][0], "run python -m tests.golden.generate"
