"""Steps on every host: bad ones, concurrent ones, and closing while busy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.js.hosts import Host
from tests.js.tiny import sequences

IDS = [3, 1, 4, 1, 5]


def row(first: Any, num: Any, **rest: Any) -> dict[str, Any]:
    return {"firstToken": first, "numTokens": num, **rest}


BAD_STEPS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no tokens": ({"tokenIds": [], "seqs": [row(0, 0)]}, "InvalidInput", "0 tokens"),
    "no sequences": ({"tokenIds": IDS, "seqs": []}, "InvalidInput", "0 sequences"),
    "too many tokens": ({"tokenIds": [1] * 301, "seqs": [row(0, 301)]}, "InvalidInput", "301"),
    "too many sequences": (
        {"tokenIds": [1] * 9, "seqs": [row(i, 1) for i in range(9)]},
        "InvalidInput",
        "9 sequences, expected 1 to 8",
    ),
    "an id past the vocabulary": (
        {"tokenIds": [1, 97], "seqs": [row(0, 2)]},
        "InvalidInput",
        "token 1",
    ),
    "a negative id": ({"tokenIds": [-1], "seqs": [row(0, 1)]}, "InvalidInput", "token 0"),
    "a fractional id": ({"tokenIds": [1, 1.5], "seqs": [row(0, 2)]}, "InvalidInput", "token 1"),
    "a text id": ({"tokenIds": ["1"], "seqs": [row(0, 1)]}, "InvalidInput", "token 0"),
    "ids that are no list": ({"tokenIds": "abc", "seqs": []}, "InvalidType", "tokenIds"),
    "rows that are no list": ({"tokenIds": IDS, "seqs": None}, "InvalidType", "seqs"),
    "a gap": (
        {"tokenIds": IDS, "seqs": [row(0, 2), row(3, 2)]},
        "InvalidInput",
        "sequence 1",
    ),
    "an overlap": ({"tokenIds": IDS, "seqs": [row(0, 3), row(2, 3)]}, "InvalidInput", "sequence 1"),
    "an empty sequence": ({"tokenIds": IDS, "seqs": [row(0, 0), row(0, 5)]}, "InvalidInput", ""),
    "tokens left over": ({"tokenIds": IDS, "seqs": [row(0, 4)]}, "InvalidInput", ""),
    "rows past the tokens": ({"tokenIds": IDS, "seqs": [row(0, 6)]}, "InvalidInput", ""),
    "a huge length": (
        {"tokenIds": IDS, "seqs": [row(0, 0xFFFFFFFF), row(0xFFFFFFFF, 6)]},
        "InvalidInput",
        "",
    ),
    "a negative length": ({"tokenIds": IDS, "seqs": [row(0, -5)]}, "InvalidInput", "numTokens"),
    "nothing left to pool": (
        {"tokenIds": IDS, "seqs": [row(0, 5, poolSkip=5)]},
        "InvalidInput",
        "sequence 0",
    ),
    "positions past the table": (
        {"tokenIds": IDS, "seqs": [row(0, 5, contextLen=316)]},
        "InvalidInput",
        "sequence 0",
    ),
    "positions that wrap": (
        {"tokenIds": IDS, "seqs": [row(0, 5, contextLen=0xFFFFFFFF)]},
        "InvalidInput",
        "sequence 0",
    ),
}


def test_E9_bad_steps(host: Host, tiny: dict[str, Path]) -> None:
    """Refused by name before any work; the model is unharmed."""
    for threads in range(1, host.max_threads + 1):
        failures = host.run(
            "steps",
            {
                "artifact": host.location(tiny["I8B32"]),
                "threads": threads,
                "good": sequences()[:3],
                "bad": {name: step for name, (step, _, _) in BAD_STEPS.items()},
            },
        )
        for name, (_, error, text) in BAD_STEPS.items():
            assert failures[name] is not None, name
            assert (failures[name]["name"], name) == (error, name)
            assert text in failures[name]["message"], name
        assert failures["threads"]["name"] == "InvalidInput"
        assert failures["closed"]["name"] == "Aborted"


def test_concurrent_steps_and_closing_while_busy(
    host: Host,
    tiny: dict[str, Path],
) -> None:
    if host.max_threads < 2:
        pytest.skip(f"{host.name} has no shared memory")
    ids = sequences()
    result = host.run("concurrent", {"artifact": host.location(tiny["I8B32"]), "sequences": ids})
    assert result["threads"] == 2
    assert result["equal"]
    # Two threads: two steps of one thread were running, the others were queued.
    assert result["busy"] == [None, None] + ["Aborted"] * (len(ids) - 2)
    assert result["after"] == "Aborted"
