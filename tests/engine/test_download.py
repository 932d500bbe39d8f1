"""`load` from an address: a real server on this machine, and every way it can fail."""

from __future__ import annotations

import _thread
import asyncio
import gc
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runtime_py as rt
from runtime_py import download, sync
from tests.engine.tiny import ids_of, run, truth, write_artifact

SHARD = "weights-00001-of-00001.safetensors"


class Site:
    """What the server has, and how it misbehaves.

    Attributes:
        asked: (file, first byte) of every request.
        drop_at: file -> share after which the next answer breaks off; used up by it.
        fail: file -> status codes of the next answers.
        ranges: the server understands range requests.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[tuple[str, int]] = []
        self.drop_at: dict[str, list[float]] = {}
        self.fail: dict[str, list[int]] = {}
        self.pages: set[str] = set()
        self.ranges = True
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def cache(self) -> Path:
        return self.folder.parent / "cache"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/models/tiny/?key=1"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path, _, query = request.path.partition("?")
        assert query == "key=1"
        assert path.startswith("/models/tiny/")
        name = path.removeprefix("/models/tiny/")
        first = int(request.headers.get("Range", "bytes=0-")[6:-1])
        self.asked.append((name, first))
        if self.fail.get(name):
            request.send_error(self.fail[name].pop(0))
            return
        if name in self.pages:
            data = b"<!DOCTYPE html><title>Welcome</title>"
        else:
            data = (self.folder / name).read_bytes()
        first = first if self.ranges else 0
        request.send_response(206 if first else 200)
        request.send_header("Content-Length", str(len(data) - first))
        request.end_headers()
        cut = self.drop_at[name].pop(0) if self.drop_at.get(name) else 1.0
        request.wfile.write(data[first : max(int(len(data) * cut), first)])
        request.close_connection = True

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(download, "_PAUSE_S", 0.0)
    monkeypatch.setattr(download, "_CHUNK", 256)
    site = Site(write_artifact(tmp_path / "site"))
    yield site
    site.close()


def test_an_address_is_loaded_once_and_then_from_the_cache(site: Site) -> None:
    seen: list[tuple[int, int]] = []

    async def test() -> None:
        for _ in range(2):
            async with await rt.load(
                site.url,
                executor="reference",
                progress=lambda here, total: seen.append((here, total)),
            ) as model:
                np.testing.assert_allclose(
                    await model.embed("hello"), truth(ids_of("hello")), atol=2e-6
                )

    run(test)
    files = json.loads((site.folder / "manifest.json").read_text())["files"]
    total = sum(f["bytes"] for f in files.values())
    assert seen[-1] == (total, total)
    assert [here for here, _ in seen] != [total] * len(seen)
    asked = [name for name, _ in site.asked]
    assert asked.count("manifest.json") == 2  # is it still the same?
    assert all(asked.count(name) == 1 for name in files)


def test_a_download_dropped_at_40_percent_continues_where_it_was(site: Site) -> None:
    site.drop_at[SHARD] = [0.4]
    folder = download.fetch(site.url)
    size = (site.folder / SHARD).stat().st_size
    assert [first for name, first in site.asked if name == SHARD] == [0, int(size * 0.4)]
    assert (folder / SHARD).read_bytes() == (site.folder / SHARD).read_bytes()
    assert not list(folder.glob("*.part"))


def test_what_a_broken_download_left_is_used_by_the_next(site: Site) -> None:
    site.drop_at[SHARD] = [0.4] * 20  # once, then no further
    with pytest.raises(rt.ArtifactMissing, match=r"broke off after \d+ of \d+ bytes.*continue"):
        download.fetch(site.url)
    site.drop_at.clear()
    site.asked.clear()
    folder = download.fetch(site.url)
    size = (site.folder / SHARD).stat().st_size
    assert [a for a in site.asked if a[0] != "manifest.json"] == [(SHARD, int(size * 0.4))]
    assert (folder / SHARD).read_bytes() == (site.folder / SHARD).read_bytes()


def test_a_server_without_ranges_begins_again(site: Site) -> None:
    site.ranges = False
    site.drop_at[SHARD] = [0.4]
    folder = download.fetch(site.url)
    assert (folder / SHARD).read_bytes() == (site.folder / SHARD).read_bytes()


def test_a_server_that_is_busy_is_asked_again(site: Site) -> None:
    site.fail[SHARD] = [503, 429, 500]
    assert (download.fetch(site.url) / SHARD).is_file()
    site.fail["manifest.json"] = [503]
    with pytest.raises(rt.ArtifactMissing, match="cannot be reached"):
        download.fetch(site.url)


def test_files_that_are_not_there_are_missing(site: Site) -> None:
    for name in ("manifest.json", SHARD):
        site.fail[name] = [404]
        with pytest.raises(rt.ArtifactMissing, match=f"{name}.*HTTP 404.*check the address"):
            download.fetch(site.url)


@pytest.mark.parametrize("name", ["manifest.json", SHARD])
def test_M11_a_web_page_instead_of_a_file_is_told(site: Site, name: str) -> None:
    site.pages.add(name)
    with pytest.raises(rt.ArtifactCorrupt, match=f"{name}.*is an HTML page"):
        download.fetch(site.url)
    site.pages.clear()
    assert (download.fetch(site.url) / name).is_file()


def test_a_file_of_another_version_is_corrupt_and_not_kept(site: Site) -> None:
    path = site.folder / SHARD
    good = path.read_bytes()
    for bad in (good[:-3] + b"abc", good + b"more"):
        path.write_bytes(bad)
        with pytest.raises(rt.ArtifactCorrupt, match="the manifest says"):
            download.fetch(site.url)
    path.write_bytes(good)
    assert (download.fetch(site.url) / SHARD).read_bytes() == good


@pytest.mark.parametrize("size", [100, 10**6])
def test_a_part_that_was_damaged_is_downloaded_again(site: Site, size: int) -> None:
    digest = hashlib.sha256((site.folder / "manifest.json").read_bytes()).hexdigest()
    folder = download.cache_folder("artifacts") / digest[:32]
    folder.mkdir(parents=True)
    (folder / f"{SHARD}.part").write_bytes(b"x" * size)
    assert download.fetch(site.url) == folder
    assert (folder / SHARD).read_bytes() == (site.folder / SHARD).read_bytes()


def test_a_damaged_cache_mends_itself(site: Site) -> None:
    path = download.fetch(site.url) / SHARD
    data = path.read_bytes()
    for bad in (data[:-1] + b"?", data[:50]):
        path.write_bytes(bad)
        download.fetch(site.url)
        assert path.read_bytes() == data


def test_addresses_that_nobody_answers(tmp_path: Path) -> None:
    for url in ("ftp://models.example/a", "file:///etc", "http://", "s3://bucket/a"):
        with pytest.raises(rt.ArtifactUnsupported, match=r"expected http:// or https://"):
            download.fetch(url, cache=tmp_path)
    with pytest.raises(rt.ArtifactMissing, match="cannot be reached"):
        download.fetch("http://127.0.0.1:9/a", cache=tmp_path)


def test_a_cache_that_cannot_be_written_is_typed(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(rt.ArtifactMissing, match="cannot be written"):
        download.fetch(site.url, cache=tmp_path / "file")


def test_what_progress_raises_ends_the_download(site: Site) -> None:
    def progress(here: int, total: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        download.fetch(site.url, progress=progress)
    kept = [p for p in site.cache.rglob("*.part") if p.stat().st_size]
    assert kept
    assert all(p.stat().st_size <= download._CHUNK for p in kept)
    assert run_once(site) == 1


def test_a_cancelled_load_ends_its_download_and_keeps_what_came(site: Site) -> None:
    """Nobody waits for a hundred megabytes after Ctrl-C."""
    begun, cancelled = threading.Event(), threading.Event()

    def progress(here: int, total: int) -> None:
        begun.set()
        assert cancelled.wait(60)

    async def test() -> None:
        task = asyncio.ensure_future(rt.load(site.url, executor="reference", progress=progress))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()
        for thread in threading.enumerate():
            if thread.name.startswith("volery"):
                await asyncio.to_thread(thread.join)

    run(test)
    assert not list(site.cache.rglob("manifest.json"))
    assert [p for p in site.cache.rglob("*.part") if p.stat().st_size]
    assert run_once(site) == 1


def test_ctrl_c_while_a_script_loads_waits_for_the_thread(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No task is dropped where it stands, and nothing is left running."""
    ending = threading.Event()
    wait_for_others = sync._others_ended

    async def others_ended() -> None:
        ending.set()
        await wait_for_others()

    def progress(here: int, total: int) -> None:
        if not ending.is_set():
            _thread.interrupt_main()
        assert ending.wait(60)

    monkeypatch.setattr(sync, "_others_ended", others_ended)
    with pytest.raises(KeyboardInterrupt):
        rt.load_sync(site.url, executor="reference", progress=progress)
    gc.collect()
    assert caplog.records == []
    assert not [t for t in threading.enumerate() if t.name.startswith("volery")]


def run_once(site: Site) -> int:
    """Loads and embeds one text."""
    with rt.load_sync(site.url, executor="reference") as model:
        return len([model.embed("hello")])
