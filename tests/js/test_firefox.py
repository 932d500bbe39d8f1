"""Firefox: other engine, same bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.js.firefox import FirefoxHost, firefox, firefox_browser
from tests.js.hosts import Host
from tests.js.test_decoder import COUNT, PROMPTS, on_wasmtime
from tests.js.test_goldens import golden_ids
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


@pytest.mark.parametrize("scheme", ["i8", "i4", "f32"])
def test_E13_goldens_in_firefox(
    page: dict[bool, FirefoxHost],
    node: Host,
    minilm_artifacts: Mapping[str, Path],
    scheme: str,
) -> None:
    """all-MiniLM-L6-v2 passes its goldens in every pool; Node's bytes, by the same build."""
    folder = minilm_artifacts[scheme]
    args = {"sequences": golden_ids(folder), "options": {"wasm": {"variant": "simd"}}}
    (expected,) = node.run("load", {**args, "artifact": str(folder)})["outputs"]
    for host in page.values():
        args["options"] = {"threads": 2}
        result = host.run("load", {**args, "artifact": host.location(folder)})
        assert result["goldens"]["cases"] == len(args["sequences"])
        assert result["info"]["threads"] == host.max_threads
        assert set(result["outputs"]) == {expected}


@pytest.mark.parametrize("isolated", [True, False])
def test_decoder_in_firefox(
    page: dict[bool, FirefoxHost], tiny_decoder: Path, isolated: bool
) -> None:
    """Goldens, and the greedy texts of wasmtime, alone and together."""
    host = page[isolated]
    artifact = host.location(tiny_decoder)
    args = {"artifact": artifact, "threads": 2, "prompts": PROMPTS, "count": COUNT}
    result = host.run("decoder", args)
    assert result["goldens"]["worstCosine"] >= 0.9995
    assert result["together"] == result["alone"] == on_wasmtime()


def test_language_model_in_firefox(
    page: dict[bool, FirefoxHost], node: Host, smollm2_artifacts: Mapping[str, Path]
) -> None:
    """SmolLM2 passes its goldens, and writes in a page what it writes in Node."""
    calls = [
        {"prompt": "The capital of France is", "options": {"maxTokens": 8}},
        {"prompt": "Once upon a time", "options": {"maxTokens": 8}},
    ]
    host = page[True]
    folder = smollm2_artifacts["i4"]
    args = {"options": {"threads": 2}, "calls": calls}
    written = {
        at.name: at.run("generate", {**args, "artifact": at.location(folder)})["results"]
        for at in (host, node)
    }
    texts = {
        name: [r["completions"][0]["tokenIds"] for r in results]
        for name, results in written.items()
    }
    assert texts[host.name] == texts[node.name]
    assert all(len(ids) == 8 for ids in texts[node.name])


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
