"""Downloads: what networks, servers and caches do wrong, in a browser and outside of one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.js import hosts
from tests.js.hosts import Host, ProcessHost
from tests.js.server import PAGE, Fault, Server, serving

SHARD = "weights-00002-of-00003.safetensors"
OTHER = "weights-00001-of-00003.safetensors"
FILES = {"manifest.json", "program.bin", "goldens.json"}


@pytest.fixture(scope="module", params=["node24", "deno-net", "chromium"])
def client(request: pytest.FixtureRequest, packaged_wasm: Path) -> Iterator[tuple[Host, Server]]:
    """A host that loads over HTTP, and the server it loads from."""
    if request.param == "node24":
        with serving({}) as server:
            yield hosts.node24(), server
    elif request.param == "deno-net":
        with hosts.deno_net() as deno:
            yield deno, deno.server
    else:
        with hosts.chromium(request.getfixturevalue("browser"), isolate=True) as chromium:
            yield chromium, chromium.server


@pytest.fixture
def artifact(client: tuple[Host, Server], tiny: dict[str, Path]) -> str:
    """The URL of a tiny artifact on a server without faults."""
    server = client[1]
    server.faults.clear()
    server.resumed.clear()
    server.ranges = True
    return server.share(tiny["I8B32"])


def load(host: Host, artifact: str, **options: object) -> dict[str, Any]:
    (result,) = host.run("once", {"loads": [{"artifact": artifact, "options": options}]})
    return dict(result)


def asked_for(server: Server) -> list[str]:
    names = [Path(path).name for path in server.requested if path.startswith("/at")]
    server.requested.clear()
    return names


def test_each_file_is_fetched_once_and_nothing_else(
    client: tuple[Host, Server], artifact: str
) -> None:
    host, server = client
    server.requested.clear()
    assert load(host, artifact, cache=False)["warnings"] == []
    names = asked_for(server)
    shards = {f"weights-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
    assert names[0] == "manifest.json"
    assert sorted(names) == sorted(FILES | shards)


def test_a_dropped_connection_is_resumed(client: tuple[Host, Server], artifact: str) -> None:
    """At 40 % of a shard, and again at 40 % of the rest; only the rest is sent again."""
    host, server = client
    for _ in range(20):  # a browser may drop all of what came before the connection broke
        server.resumed.clear()
        server.faults[SHARD] = [Fault(cut=0.4), Fault(cut=0.4)]
        assert load(host, artifact, cache=False)["warnings"] == []
        if len(server.resumed) == 2:
            break
    (path, first), (_, second) = server.resumed
    size = server.find(path).stat().st_size  # type: ignore[union-attr]
    assert path.endswith(SHARD)
    # Or some of it.
    assert 0 < first <= int(size * 0.4)
    assert first <= second < size


def test_a_dropped_connection_without_ranges(client: tuple[Host, Server], artifact: str) -> None:
    """A server that knows no ranges sends all of it again; so does one whose file changed."""
    host, server = client
    server.ranges = False
    server.faults[SHARD] = [Fault(cut=0.4)]
    assert load(host, artifact, cache=False)["warnings"] == []
    assert server.resumed == []


BROKEN = {
    "a page": Fault(body=PAGE),
    "truncated": Fault(body=b"\x10\x00\x00\x00\x00\x00\x00\x00"),
    "garbage": Fault(body=bytes(50_000)),
}


@pytest.mark.parametrize("fault", BROKEN.values(), ids=BROKEN.keys())
def test_a_corrupt_shard_is_fetched_once_more(
    client: tuple[Host, Server], artifact: str, fault: Fault
) -> None:
    host, server = client
    server.faults[SHARD] = [fault]
    server.requested.clear()
    assert load(host, artifact, cache=False)["warnings"] == []
    assert asked_for(server).count(SHARD) == 2
    server.faults[SHARD] = [fault] * 2
    failure = load(host, artifact, cache=False)["failure"]
    assert failure["name"] == "ArtifactCorrupt"
    assert SHARD in failure["message"]
    assert asked_for(server).count(SHARD) == 2


def test_a_shard_of_another_version(client: tuple[Host, Server], artifact: str) -> None:
    """Right size, wrong content: the hash tells, whatever the codes look like."""
    host, server = client
    body = bytearray(server.find(artifact.removeprefix(server.origin) + SHARD).read_bytes())  # type: ignore[union-attr]
    body[-1] ^= 0x80
    server.faults[SHARD] = [Fault(body=bytes(body))] * 2
    failure = load(host, artifact, cache=False)["failure"]
    assert failure["name"] == "ArtifactCorrupt"


def test_an_overloaded_server_is_asked_again(client: tuple[Host, Server], artifact: str) -> None:
    host, server = client
    server.faults[SHARD] = [Fault(status=503)]
    server.faults["manifest.json"] = [Fault(status=502)]
    assert load(host, artifact, cache=False)["warnings"] == []


CACHES = {
    "node24": ("files", "memory"),
    "deno-net": ("memory",),
    "chromium": ("cache-api", "opfs", "memory", "default"),
}


def caches(host: Host, tmp_path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in CACHES[host.name]:
        yield name, {"cache": {"name": name, "folder": str(tmp_path / "cache")}}


def test_a_second_load_comes_from_the_cache(
    client: tuple[Host, Server], artifact: str, tmp_path: Path
) -> None:
    """Only the manifest is asked for again; a corrupt copy is replaced, once."""
    host, server = client
    for name, options in caches(host, tmp_path):
        server.requested.clear()
        loads = [{"artifact": artifact, **options}] * 2
        damaged = [{"damage": True, **loads[0]}, loads[0]]
        results = host.run("once", {"loads": loads + damaged})
        assert [r["warnings"] for r in results] == [[]] * 4, name
        names = asked_for(server)
        # All of it, nothing, and what was damaged: every copy, which asked for the manifest.
        assert names.count("manifest.json") == 5, name
        assert names.count(SHARD) == 2, name
        assert names.count("program.bin") == 2, name


def test_M13_full_storage(client: tuple[Host, Server], artifact: str) -> None:
    """A quota error does not stop a load whose bytes are in hand; it is told once."""
    host, server = client
    server.requested.clear()
    full = {"artifact": artifact, "cache": {"name": "full"}}
    broken = {"artifact": artifact, "cache": {"name": "broken"}}
    first, second, third = host.run("once", {"loads": [full, full, broken]})
    for result in (first, second):
        (warning,) = result["warnings"]
        assert "did not take a copy" in warning
        assert "QuotaExceededError" in warning
    assert 1 <= len(third["warnings"]) <= 2
    assert asked_for(server).count(SHARD) == 3


def test_M13_no_cache_api(browser: Any, tiny: dict[str, Path]) -> None:
    """A page of an insecure context has no Cache API and no private file system."""
    with hosts.chromium(browser, isolate=True) as host:
        (result,) = host.run(
            "once",
            {"loads": [{"artifact": host.location(tiny["I8B32"])}], "without": ["caches"]},
        )
    assert result["warnings"] == []


def test_sources_of_other_hosts(node: ProcessHost, tiny: dict[str, Path], tmp_path: Path) -> None:
    """A file cache is not written for files that are on disk already."""
    shutil.copytree(tiny["I8B32"], tmp_path / "a")
    location = {"artifact": str(tmp_path / "a")}
    assert node.run("once", {"loads": [location]})[0]["warnings"] == []
    assert sorted(tmp_path.iterdir()) == [tmp_path / "a"]
