"""Fixtures: the wheel, and Pyodide in a real page, in a worker of a page, and in Deno."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
from filelock import FileLock

from tests.engine.tiny import write_artifact as write_encoder
from tests.generation.test_loading import write as write_decoder
from tests.js import hosts
from tests.js.hosts import ROOT, result_of, run_process
from tests.js.server import Server, serving

HERE = Path(__file__).parent
PYODIDE = ROOT / "demo" / "node_modules" / "pyodide"
WHEEL = "volery-0.1.0-py3-none-any.whl"
TIMEOUT_S = 240


class Python(Protocol):
    """A Python in a page, with the wheel installed and nothing else.

    Attributes:
        server: what it may talk to; its ``share`` gives a folder an address.
    """

    name: str
    server: Server

    def run(self, code: str) -> Any:
        """What ``code``, which may await, leaves in ``result``; it must be plain data."""
        ...


class Page:
    """The page's main thread, or a worker of it; one interpreter for all programs."""

    def __init__(self, browser: Any, server: Server, *, worker: bool) -> None:
        self.name = "worker" if worker else "page"
        self.server = server
        self.foreign: list[str] = []
        self._context = browser.new_context()
        self._page = self._context.new_page()
        self._page.set_default_timeout(TIMEOUT_S * 1000)
        self._page.on("request", self._note)
        self._page.goto(f"{server.origin}/tests/pyodide/page.html")
        start = "async ([worker, wheel]) => (await import('./page.js')).start(worker, wheel)"
        self._page.evaluate(start, [worker, f"/wheel/{WHEEL}"])

    def run(self, code: str) -> Any:
        answer = self._page.evaluate("(code) => globalThis.runPython(code)", code)
        return result_of(json.loads(answer))

    def close(self) -> None:
        self._context.close()

    def _note(self, request: Any) -> None:
        if not request.url.startswith((self.server.origin + "/", "data:", "blob:")):
            self.foreign.append(request.url)


class Deno:
    """Deno that may reach the tests' server and read Pyodide; an interpreter for each program."""

    name = "deno"

    def __init__(self, server: Server) -> None:
        self.server = server
        address = server.origin.removeprefix("http://")
        self._command = [
            hosts.deno_binary(),
            "run",
            "--quiet",
            "--no-config",
            f"--allow-net={address}",
            f"--allow-read={PYODIDE},{HERE}",
            "--allow-env",
            str(HERE / "deno.js"),
            f"{PYODIDE}/",
            f"{server.origin}/wheel/{WHEEL}",
        ]

    def run(self, code: str) -> Any:
        return run_process(self.name, self._command, code, timeout_s=TIMEOUT_S)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a wheel built from this checkout."""
    if not PYODIDE.is_dir():
        pytest.skip("Pyodide is not installed; run `npm ci` in demo/")
    folder = tmp_path_factory.mktemp("wheel")
    with FileLock(ROOT / "build" / "wheel.lock"):
        command = [sys.executable, "-m", "pip", "wheel", "-qq", "--no-deps"]
        command += ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
        subprocess.run(command, check=True, timeout=TIMEOUT_S)
    assert [f.name for f in folder.iterdir()] == [WHEEL]
    return folder


@pytest.fixture(scope="module")
def mounts(wheel: Path) -> dict[str, Path]:
    return {"/pyodide/": PYODIDE, "/wheel/": wheel, "/tests/pyodide/": HERE}


@pytest.fixture(scope="module")
def server(mounts: dict[str, Path]) -> Iterator[Server]:
    with serving(mounts) as server:
        yield server


# Not for the session: see `browser` of tests/js.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with hosts.chromium_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def page(browser: Any, server: Server) -> Iterator[Page]:
    page = Page(browser, server, worker=False)
    yield page
    page.close()


@pytest.fixture(scope="module")
def plain_page(browser: Any, mounts: dict[str, Path]) -> Iterator[Page]:
    """A page that is not cross-origin isolated: its workers share no memory."""
    with serving(mounts, isolate=False) as server:
        page = Page(browser, server, worker=False)
        yield page
        page.close()


@pytest.fixture(scope="module", params=["page", "worker", "deno"])
def python(request: pytest.FixtureRequest, server: Server) -> Iterator[Python]:
    """Every place in turn."""
    if request.param == "deno":
        yield Deno(server)
    elif request.param == "page":
        yield request.getfixturevalue("page")
    else:
        page = Page(request.getfixturevalue("browser"), server, worker=True)
        yield page
        page.close()


@pytest.fixture(scope="session")
def tiny_encoder_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder") / "tiny")


@pytest.fixture(scope="session")
def tiny_decoder_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_decoder(tmp_path_factory.mktemp("decoder") / "tiny")
