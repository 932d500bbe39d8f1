"""Loading on every host: goldens, equal bytes, and what broken artifacts get."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.js import hosts
from tests.js.hosts import JS, ChromiumHost, Host
from tests.js.server import serving
from tests.js.tiny import sequences, write_manifest

SHARD = "weights-00002-of-00003.safetensors"


@pytest.fixture(scope="session")
def node_bytes(tiny: dict[str, Path], node: Host) -> dict[str, str]:
    """Node 24's output on one thread for each tiny artifact."""
    return {
        name: node.run("load", {"artifact": str(at), "options": {}, "sequences": sequences()})[
            "outputs"
        ][0]
        for name, at in tiny.items()
    }


@pytest.mark.parametrize("fmt", ["F32", "F16", "I8B32", "I4B32"])
def test_load_and_run(
    host: Host, tiny: dict[str, Path], node_bytes: dict[str, str], fmt: str
) -> None:
    """Goldens pass, progress is overall, every thread count gives Node's bytes."""
    args = {"artifact": host.location(tiny[fmt]), "sequences": sequences()}
    for threads in (1, 2):
        result = host.run("load", {**args, "options": {"threads": threads}})
        info = result["info"]
        assert info["threads"] == min(threads, host.max_threads)
        assert (info["warnings"] == []) == (threads <= host.max_threads)
        suffix = "-threads" if info["threads"] > 1 else ""
        assert info["variant"] == host.variants[-1] + suffix
        assert result["goldens"]["cases"] == len(sequences())
        assert result["goldens"]["worstCosine"] > 0.9999
        if fmt in ("I8B32", "I4B32") or host.variants[-1] == "relaxed":
            assert set(result["outputs"]) == {node_bytes[fmt]}
        else:
            a, b = (
                np.frombuffer(base64.b64decode(x), np.float32)
                for x in (result["outputs"][0], node_bytes[fmt])
            )
            np.testing.assert_allclose(a, b, atol=1e-5)
            assert len(set(result["outputs"])) == 1
        progress = result["progress"]
        assert progress["rising"]
        assert progress["last"]["loadedBytes"] == progress["last"]["totalBytes"]


def test_wasm_variants_give_the_same_bits(
    host: Host, tiny: dict[str, Path], node_bytes: dict[str, str]
) -> None:
    args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()}
    for variant in host.variants:
        result = host.run("load", {**args, "options": {"wasm": {"variant": variant}}})
        assert result["info"]["variant"] == variant
        assert result["outputs"] == [node_bytes["I8B32"]]


def _edit_json(name: str, edit: Callable[[Any], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        value = json.loads((folder / name).read_text())
        edit(value)
        (folder / name).write_text(json.dumps(value))
        if name != "manifest.json":
            write_manifest(folder)

    return damage


def _edit_bytes(
    name: str, edit: Callable[[bytes], bytes], listed: bool = False
) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(edit((folder / name).read_bytes()))
        if listed:
            write_manifest(folder)

    return damage


def _flip(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _turn_sign(goldens: Any) -> None:
    goldens["cases"][2]["embedding"] = [-x for x in goldens["cases"][2]["embedding"]]


HTML = b"<!doctype html><title>App</title>"
FAULTS: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "no folder": (shutil.rmtree, "ArtifactMissing", "manifest.json"),
    "no shard": (lambda f: (f / SHARD).unlink(), "ArtifactMissing", SHARD),
    "no program": (lambda f: (f / "program.bin").unlink(), "ArtifactMissing", "program.bin"),
    "truncated shard": (_edit_bytes(SHARD, lambda b: b[:-100]), "ArtifactCorrupt", SHARD),
    "longer shard": (_edit_bytes(SHARD, lambda b: b + b"x"), "ArtifactCorrupt", SHARD),
    "empty shard": (_edit_bytes(SHARD, lambda b: b""), "ArtifactCorrupt", SHARD),
    "shard cut in its header": (
        _edit_bytes(SHARD, lambda b: b[:20], listed=True),
        "ArtifactCorrupt",
        SHARD,
    ),
    "a bit of the data": (_edit_bytes(SHARD, _flip(-1 % 5000)), "ArtifactCorrupt", SHARD),
    "a bit of the header": (_edit_bytes(SHARD, _flip(40)), "ArtifactCorrupt", SHARD),
    "a page for a shard": (_edit_bytes(SHARD, lambda b: HTML), "ArtifactCorrupt", SHARD),
    "a page for the manifest": (
        _edit_bytes("manifest.json", lambda b: HTML),
        "ArtifactCorrupt",
        "HTML page",
    ),
    "a bit of the program": (
        _edit_bytes("program.bin", _flip(200)),
        "ArtifactCorrupt",
        "program.bin",
    ),
    "an unknown op": (
        # The kind of the last op; the records end where the names begin.
        _edit_bytes(
            "program.bin",
            lambda b: (
                b[: (at := len(b) - int.from_bytes(b[24:28], "little") - 112)]
                + b"\xff\x00"
                + b[at + 2 :]
            ),
            listed=True,
        ),
        "ArtifactUnsupported",
        "update volery",
    ),
    "a broken program": (
        # The first op writes a slot that does not exist.
        _edit_bytes(
            "program.bin",
            lambda b: (
                b[: (at := 64 + 8 * b[12] + 32 * b[16]) + 4] + b"\xff\xff\x00\x00" + b[at + 8 :]
            ),
            listed=True,
        ),
        "ArtifactCorrupt",
        "program.bin",
    ),
    "shards swapped": (
        lambda f: (
            (f / SHARD).rename(f / "x"),
            (f / SHARD.replace("2", "1", 1)).rename(f / SHARD),
            (f / "x").rename(f / SHARD.replace("2", "1", 1)),
            write_manifest(f),
        ),
        "ArtifactCorrupt",
        "out of order",
    ),
    "a newer format": (
        _edit_json("manifest.json", lambda m: m.update(format_version=9)),
        "ArtifactUnsupported",
        "format version 9",
    ),
    "a path in the manifest": (
        _edit_json("manifest.json", lambda m: m["files"].update({"../x": m["files"][SHARD]})),
        "ArtifactCorrupt",
        "plain name",
    ),
    "E10 wrong goldens": (_edit_json("goldens.json", _turn_sign), "ArtifactCorrupt", "golden"),
    "goldens of another width": (
        _edit_json("goldens.json", lambda g: g["cases"][0]["embedding"].pop()),
        "ArtifactCorrupt",
        "goldens.json case 0",
    ),
    "goldens outside the vocabulary": (
        _edit_json("goldens.json", lambda g: g["cases"][0].update(token_ids=[1 << 20])),
        "ArtifactCorrupt",
        "goldens.json cannot be run",
    ),
}


def test_E10_broken_artifacts(host: Host, tiny: dict[str, Path], tmp_path: Path) -> None:
    """Anything missing, altered or unknown is a typed one-line error, never a vector."""
    locations = {}
    for i, (name, (damage, _, _)) in enumerate(FAULTS.items()):
        folder = tmp_path / str(i)
        shutil.copytree(tiny["I8B32"], folder)
        damage(folder)
        locations[name] = host.location(folder)
    # Without a cache: it would have the right content of what is missing or altered here.
    options = {"threads": host.max_threads, "cache": False}
    failures = host.run("faults", {"locations": locations, "options": options})
    for name, (_, error, text) in FAULTS.items():
        failure = failures[name]
        assert failure is not None, name
        assert (failure["name"], name) == (error, name), failure
        assert text in failure["message"], name
        assert "\n" not in failure["message"], name


def test_M11_single_page_host(node: Host, tiny: dict[str, Path], tmp_path: Path) -> None:
    """A host that answers everything with its page: the error names URL and type."""
    shutil.copytree(tiny["I8B32"], tmp_path / "a")
    (tmp_path / "a" / SHARD).unlink()
    with serving({"/a/": tmp_path / "a"}, spa=True) as server:
        locations = {"shard": f"{server.origin}/a", "all": f"{server.origin}/b/"}
        failures = node.run("faults", {"locations": locations})
    for name, file in (("shard", f"a/{SHARD}"), ("all", "b/manifest.json")):
        assert failures[name]["name"] == "ArtifactCorrupt"
        expected = f"{server.origin}/{file} is an HTML page (text/html"
        assert failures[name]["message"].startswith(expected)


@pytest.mark.parametrize("pool", ["threads", "instances"])
def test_abort_at_every_stage(host: Host, tiny: dict[str, Path], pool: str) -> None:
    """A load that is called off ends typed, at whatever moment, and leaves no worker."""
    args = {"artifact": host.location(tiny["I8B32"]), "threads": host.max_threads, "pool": pool}
    *aborted, last = host.run("abort", args)
    assert len(aborted) > 3
    assert {f["name"] for f in aborted} == {"Aborted"}
    assert last is None
    if isinstance(host, ChromiumHost):
        assert host.workers_after == 0


def test_M6_strict_content_security_policy(
    browser: Any, packaged_wasm: Path, tiny: dict[str, Path]
) -> None:
    """Nothing is evaluated, inlined or fetched from elsewhere, with threads too."""
    # The page's import map is inline: the one script that the policy knows by its hash.
    (import_map,) = re.findall(
        r'<script type="importmap">(.*?)</script>', (JS / "page.html").read_text(), re.S
    )
    digest = base64.b64encode(hashlib.sha256(import_map.encode()).digest()).decode()
    scripts = f"'self' 'wasm-unsafe-eval' 'sha256-{digest}'"
    policy = f"default-src 'none'; script-src {scripts}; connect-src 'self'"
    with hosts.chromium(browser, isolate=True) as host:
        host.server.headers["Content-Security-Policy"] = policy + "; worker-src 'self'"
        args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()}
        result = host.run("load", {**args, "options": {"threads": 2}})
    assert result["info"]["threads"] == 2


def test_explicit_wasm(host: Host, packaged_wasm: Path, tiny: dict[str, Path]) -> None:
    """The wasm file from a URL of one's own, as bytes, or compiled; and the wrong one."""
    args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()[:2]}
    assert host.run("explicit_wasm", args) == {
        "url": "simd",
        "folder": "simd",
        "function": "simd",
        "bytes": "simd",
        "module": "simd",
        "wrong": "ArtifactUnsupported",
        "page": "ArtifactCorrupt",
    }


def test_deno_with_network_only(packaged_wasm: Path, tiny: dict[str, Path]) -> None:
    """Artifact, wasm and worker scripts by HTTP; no permission to read files."""
    with hosts.deno_net() as host:
        args = {"artifact": host.location(tiny["I8B32"]), "sequences": sequences()}
        result = host.run("load", {**args, "options": {"threads": 2}})
    assert result["info"]["threads"] == 2
    assert result["goldens"]["cases"] == len(sequences())
