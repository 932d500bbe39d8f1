"""Firefox: other engine, same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
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


@pytest.mark.parametrize("fmt", ["I8B32", "I4B32"])
def test_E14_the_same_bits_in_firefox(
    page: dict[bool, FirefoxHost], node: Host, tiny: dict[str, Path], fmt: str
) -> None:
    """Every pool, isolated or not, with the best build and with the plain one: Node's bytes.

    Which build is best depends on the release: the long-term one of 2025 has no relaxed SIMD.
    """
    args = {"artifact": str(tiny[fmt]), "sequences": sequences(), "options": {}}
    (expected,) = node.run("load", args)["outputs"]
    for host in page.values():
        args["artifact"] = host.location(tiny[fmt])
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


def test_E13_goldens_in_firefox(
    page: dict[bool, FirefoxHost], minilm_artifacts: Mapping[str, Path]
) -> None:
    """The real model, on two threads and on its copies."""
    folder = minilm_artifacts["i8"]
    goldens = json.loads((folder / "goldens.json").read_text())
    sequences = [case["token_ids"] for case in goldens["cases"]]
    outputs = set()
    for host in page.values():
        args = {"artifact": host.location(folder), "sequences": sequences}
        result = host.run("load", {**args, "options": {"threads": 2}})
        assert result["goldens"]["worstCosine"] >= goldens["tolerance"]["cosine"]
        outputs |= set(result["outputs"])
    assert len(outputs) == 1
