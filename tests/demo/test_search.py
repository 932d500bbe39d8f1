"""The demo as `make demo` runs it, and with a question of one's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def demo(artifact: Path, *queries: str) -> str:
    done = subprocess.run(
        [sys.executable, "demo/search.py", artifact, *queries],
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def hits(shown: str, query: str) -> list[str]:
    """The passages below a query, best first."""
    after = shown.split(f"? {query}\n", 1)[1]
    return re.findall(r"^ ?-?\d\.\d\d (.*?) *$", after.split("\n? ")[0], re.MULTILINE)[:3]


@pytest.fixture(scope="module")
def shown(minilm_artifacts: Mapping[str, Path]) -> str:
    return demo(minilm_artifacts["i8"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("How do birds find their way in the dark?", "Birds that travel at night"),
        ("the fastest animal", "The peregrine falcon"),
        ("Which father keeps an egg warm?", "Emperor penguins"),
        ("a nest that many families share", "Sociable weavers"),
        ("Where does the pink colour come from?", "Flamingos"),
    ],
)
def test_a_search_finds_what_is_meant(shown: str, query: str, expected: str) -> None:
    found = hits(shown, query)
    assert len(found) == 3
    assert found[0].startswith(expected), found


def test_it_shows_both_classes_and_the_batches(shown: str) -> None:
    assert re.search(r"query, median +[\d.]+ ms +[\d.]+ ms", shown)
    assert re.search(r"bulk job +- +[\d,]+ texts/s", shown)
    assert re.search(r"[\d,]+ texts, [\d,]+ tokens in [\d,]+ steps", shown)
    assert "texts in a step" in shown


def test_a_question_of_ones_own(minilm_artifacts: Mapping[str, Path]) -> None:
    shown = demo(minilm_artifacts["i8"], "birds that live underground")
    assert any("burrowing owl" in p for p in hits(shown, "birds that live underground"))
    assert "bulk job" not in shown
