"""What runs the steps: threads, instances in workers, the calling thread; and their deaths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.js import hosts
from tests.js.hosts import ChromiumHost, Host
from tests.js.tiny import sequences

KINDS = ("threads", "instances", "inline")


def test_every_pool_gives_the_same_bytes(host: Host, tiny: dict[str, Path]) -> None:
    """Whatever runs a step, and however many steps run beside it."""
    loads = [(1, "inline"), (1, "instances"), (2, "instances"), (2, "threads"), (2, None)]
    args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences(), "loads": loads}
    results = host.run("pools", args)
    shared = "threads" if host.max_threads > 1 else "instances"
    assert [r["pool"] for r in results] == ["inline", "instances", "instances", shared, shared]
    assert [r["concurrency"] for r in results] == [1, 1, 2, 2, 2]
    assert [r["threads"] for r in results] == [1, 1, 1, host.max_threads, host.max_threads]
    assert len({output for r in results for output in r["outputs"]}) == 1
    # A copy of the model for each instance, and one for all threads.
    one, _, two, threads, _ = (r["memoryBytes"]["weights"] for r in results)
    assert two == 2 * one
    assert threads == (one if shared == "threads" else two)
    if isinstance(host, ChromiumHost):
        assert host.workers_after == 0


def test_M5_no_shared_memory_runs_copies(browser: Any, tiny: dict[str, Path]) -> None:
    """A page that is not isolated: one warning, and steps run side by side all the same."""
    with hosts.chromium(browser, isolate=False) as host:
        args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()}
        (result,) = host.run("pools", {**args, "loads": [(2, None)]})
    (warning,) = result["warnings"]
    assert "COOP" in warning
    assert "copies of the model" in warning
    assert result["threads"] == 1
    assert result["concurrency"] == 2


def test_a_page_is_kept_free(browser: Any, tiny: dict[str, Path]) -> None:
    """On a page's main thread one thread means one worker, so that the page never stops."""
    with hosts.chromium(browser, isolate=False) as host:
        args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()}
        (result,) = host.run("pools", {**args, "loads": [(1, None)]})
    assert result["pool"] == "instances"
    assert result["warnings"] == []


@pytest.mark.parametrize("pool", ["threads", "instances"])
def test_a_worker_that_dies(node: Host, tiny: dict[str, Path], pool: str) -> None:
    """Its steps fail typed, none hangs, and the next one finds a new backend."""
    args = {"artifact": str(tiny["I8B32"]), "sequences": sequences(), "pool": pool}
    result = node.run("lost", args)
    assert "DeviceLost" in result["midStep"]
    assert set(result["midStep"]) <= {"DeviceLost", "ok"}
    assert result["again"] == [True] * 3
    assert result["started"] == 4
    assert result["idle"] == "ok"
    assert set(result["deaths"]) <= {"DeviceLost", "ok"}


def test_a_worker_that_dies_when_the_files_are_gone(node: Host, tiny: dict[str, Path]) -> None:
    """A model loaded from bytes does not keep them: it says that it must be loaded again."""
    args = {"artifact": str(tiny["I8B32"]), "sequences": sequences(), "bytes": True}
    result = node.run("lost", args)
    assert "DeviceLost" in result["midStep"]
    for message in result["again"]:
        assert "load the model again" in message


def test_workers_of_the_callers_own(host: Host, tiny: dict[str, Path]) -> None:
    """By URL or by a function, for hosts and policies where the package's cannot be loaded."""
    args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()[:2]}
    result = host.run("own_workers", args)
    assert result == {"url": [], "function": [], "made": 2}
