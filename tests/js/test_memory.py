"""Memory: hosts that refuse it, models that give it back, and how much loading takes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.js import hosts
from tests.js.hosts import ChromiumHost, Host, ProcessHost
from tests.js.tiny import sequences

CYCLES = {"node24": 50, "chromium": 50}
WINDOW = 8
MAX_GROWTH = 24 << 20


def test_M4_small_shared_maximum(host: Host, tiny: dict[str, Path]) -> None:
    """A host that refuses large shared memories still gets its threads."""
    args = {"artifact": host.location(tiny["I8B32"]), "maxSharedPages": 16384, "maxPages": 65536}
    result = host.run("memory", args)
    assert result["threads"] == host.max_threads
    assert (result["warnings"] == []) == (host.max_threads > 1)
    assert max((m["maximum"] for m in result["asked"]), default=0) < 16384


def test_M4_no_shared_memory(host: Host, tiny: dict[str, Path]) -> None:
    """Without shared memory the model runs on one thread, and says so once."""
    args = {"artifact": host.location(tiny["I8B32"]), "maxSharedPages": 0, "maxPages": 65536}
    result = host.run("memory", args)
    assert result["threads"] == 1
    assert result["variant"] == host.variants[-1]
    assert len(result["warnings"]) == 1
    assert result["goldens"]["cases"] == len(sequences())


def test_M3_out_of_memory_names_the_bytes(host: Host, tiny: dict[str, Path]) -> None:
    sizes = {"maxSharedPages": 0, "maxPages": 16, "pool": "inline"}
    failure = host.run("memory", {"artifact": host.location(tiny["I8B32"]), **sizes})["failure"]
    assert failure["name"] == "OutOfMemory"
    assert failure["bytesRequested"] > 0
    assert str(failure["bytesRequested"]) in failure["message"]


def test_M1_load_and_close_gives_everything_back(
    host: Host,
    tiny: dict[str, Path],
) -> None:
    """Many cycles leave no worker behind: the process ends by itself, the page has none."""
    args = {
        "artifact": host.location(tiny["I8B32"]),
        "cycles": CYCLES.get(host.name, 10),
        "threads": host.max_threads,
        "sequences": sequences(),
    }
    assert host.run("cycles", args)["workers"] == 0
    if isinstance(host, ChromiumHost):
        assert host.workers_after == 0


@pytest.mark.parametrize("pool", ["threads", "instances"])
def test_M1_memory_is_flat(node: ProcessHost, tiny: dict[str, Path], pool: str) -> None:
    node = ProcessHost(
        node.name, [node.command[0], "--expose-gc", *node.command[1:]], node.variants
    )
    args = {"artifact": str(tiny["F32"]), "cycles": 3 * WINDOW, "threads": 2, "pool": pool}

    def growth() -> int:
        rss = node.run("cycles", {**args, "sequences": sequences()})["rss"]
        return max(rss[-WINDOW:]) - max(rss[:WINDOW])

    # When V8 gives pages back is chance; a leak would be there every time.
    found = []
    while not found or (min(found) >= MAX_GROWTH and len(found) < 3):
        found.append(growth())
    assert min(found) < MAX_GROWTH, found


def test_M16_exit_without_closing(node: Host, tiny: dict[str, Path]) -> None:
    """A program that forgets to close ends all the same: idle threads do not hold it."""
    result = node.run("forget", {"artifact": str(tiny["I8B32"])})
    assert result == {"threads": 2}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_M3_peak_while_loading(node: Host, minilm_artifacts: Mapping[str, Path]) -> None:
    """Loading holds no second copy of the weights.

    The least of three processes counts: when V8 collects its young objects is chance, and
    a second copy would be there every time.
    """
    args = {"artifact": str(minilm_artifacts["i8"])}
    result = min((node.run("peak", args) for _ in range(3)), key=lambda r: r["peak"])
    memory = result["memoryBytes"]
    assert result["peak"] <= 1.2 * memory["weights"] + memory["workspaces"], result


def test_M5_worker_script_not_found(browser: Any, tiny: dict[str, Path]) -> None:
    """A page whose workers cannot start runs on one thread, and says why."""
    with hosts.chromium(browser, isolate=True) as host:
        host.blocked.append("**/pool/worker.js")
        args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()}
        result = host.run("load", {**args, "options": {"threads": 2}})
    assert result["info"]["threads"] == 1
    (warning,) = result["info"]["warnings"]
    assert "could not be started" in warning
