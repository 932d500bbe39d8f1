"""Firefox: other engine, same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.js.firefox import FirefoxHost, firefox, firefox_browser
from tests.js.hosts import Host
from tests.js.tiny import sequences


@pytest.fixture(scope="module")
def page(packaged_wasm: Path) -> Iterator[dict[bool, FirefoxHost]]:
    """A page that is cross-origin isolated, and one that is not."""
    with (
        firefox_browser() as browser,
        firefox(browser, isolate=True) as isolated,
        firefox(browser, isolate=False) as plain,
    ):
        yield {True: isolated, False: plain}


def test_E14_the_same_bits_in_firefox(
    page: dict[bool, FirefoxHost], node: Host, tiny: dict[str, Path]
) -> None:
    """Every pool, isolated or not, with the best build and with the plain one: Node's bytes.

    Which build is best depends on the release: the long-term one of 2025 has no relaxed SIMD.
    """
    args = {"artifact": str(tiny["I8B32"]), "sequences": sequences(), "options": {}}
    (expected,) = node.run("load", args)["outputs"]
    for host in page.values():
        args["artifact"] = host.location(tiny["I8B32"])
        result = host.run("load", {**args, "options": {"threads": 2}})
        assert result["goldens"]["cases"] == len(sequences())
        assert result["info"]["threads"] == host.max_threads
        assert set(result["outputs"]) == {expected}
        plain = host.run("load", {**args, "options": {"wasm": {"variant": "simd"}}})
        assert plain["outputs"] == [expected]


def test_M13_caches_of_firefox(page: dict[bool, FirefoxHost], tiny: dict[str, Path]) -> None:
    """The second load of each kind asks for the manifest alone."""
    host = page[True]
    artifact = host.location(tiny["I8B32"])
    for name in ("cache-api", "opfs"):
        host.server.requested.clear()
        results = host.run("once", {"loads": [{"artifact": artifact, "cache": {"name": name}}] * 2})
        assert [r["warnings"] for r in results] == [[], []]
        asked = [path for path in host.server.requested if path.startswith("/at")]
        assert sum(path.endswith("manifest.json") for path in asked) == 2
        assert sum(path.endswith("program.bin") for path in asked) == 1
