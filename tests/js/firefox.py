"""Firefox as a host of the test programs, driven over Marionette, its own remote protocol.

Playwright drives only a Firefox that it has patched. Marionette is in every Firefox: JSON
messages over TCP, ``length:[0, id, command, parameters]`` there and
``length:[1, id, error, result]`` back.
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.js.hosts import RUN, SCRIPTS, TIMEOUT_S, HostFailure
from tests.js.server import Server, serving

PREFERENCES = {
    "marionette.port": 0,  # a free one
    "remote.log.level": "Info",
    "remote.prefs.recommended": True,
    # Firefox on its own asks for none of these:
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.region.network.url": "",
    "browser.safebrowsing.provider.mozilla.updateURL": "",
    "datareporting.policy.dataSubmissionEnabled": False,
    "extensions.getAddons.cache.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,#none",
    "toolkit.telemetry.server": "",
    # Its JIT compiles SIMD to AVX and SSE instructions by turns. That is slow, on recent Xeons
    # several hundred times as slow, while the upper halves of the AVX registers are in use:
    # Firefox leaves them so after a string search, and only the routines of glibc for machines
    # without AVX-512 ever clear them. The tests take the same code without AVX encodings.
    "javascript.options.wasm_simd_avx": False,
}
# A script of the driver's cannot import modules, one of the page's can.
PROGRAM = """
const [source, done] = arguments;
document.addEventListener("answered", () => done(document.documentElement.dataset.answer));
const script = document.createElement("script");
script.type = "module";
script.textContent = source;
document.head.append(script);
"""
REQUESTED = """return performance.getEntriesByType("resource").map((entry) => entry.name);"""


class Marionette:
    """A connection; one command at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._file = self._socket.makefile("rb")
        self._receive()  # it says hello
        self._id = 0

    def call(self, command: str, parameters: dict[str, Any] | None = None) -> Any:
        self._id += 1
        message = json.dumps([0, self._id, command, parameters or {}]).encode()
        self._socket.sendall(b"%d:%s" % (len(message), message))
        _, answered, error, result = self._receive()
        assert answered == self._id
        if error is not None:
            raise HostFailure(f"{command}: {error['error']}: {error['message']}")
        return result

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _receive(self) -> Any:
        length = b""
        while (digit := self._file.read(1)) != b":":
            if not digit:
                raise HostFailure("Firefox closed the connection")
            length += digit
        return json.loads(self._file.read(int(length)))


class FirefoxHost:
    """A page of headless Firefox, cross-origin isolated or not.

    The release with long-term support has no relaxed SIMD, whatever its preferences say.
    """

    variants = ("simd",)

    def __init__(self, marionette: Marionette, server: Server) -> None:
        self.name = "firefox" if server.isolate else "firefox-not-isolated"
        self.max_threads = 2 if server.isolate else 1
        self.server = server
        self.foreign: list[str] = []
        self._marionette = marionette

    def location(self, path: Path) -> str:
        return self.server.share(path)

    def run(self, program: str, args: object = None) -> Any:
        call = self._marionette.call
        call("WebDriver:Navigate", {"url": f"{self.server.origin}/tests/js/page.html"})
        source = (
            f"const answer = await ({RUN})({json.dumps([program, args])});"
            "document.documentElement.dataset.answer = JSON.stringify(answer);"
            'document.dispatchEvent(new Event("answered"));'
        )
        script = {"script": PROGRAM, "args": [source]}
        answer = json.loads(call("WebDriver:ExecuteAsyncScript", script)["value"])
        urls = call("WebDriver:ExecuteScript", {"script": REQUESTED, "args": []})["value"]
        self.foreign += [u for u in urls if not u.startswith((self.server.origin, "data:"))]
        if "error" in answer:
            raise HostFailure(answer["error"])
        return answer["result"]


@contextmanager
def firefox_browser() -> Iterator[Marionette]:
    binary = shutil.which("firefox-esr") or shutil.which("firefox")
    if binary is None:
        pytest.skip("no Firefox on this machine (Debian: apt-get install firefox-esr)")
    with TemporaryDirectory() as profile:
        lines = [f"user_pref({json.dumps(k)}, {json.dumps(v)});" for k, v in PREFERENCES.items()]
        (Path(profile) / "user.js").write_text("\n".join(lines))
        process = subprocess.Popen(
            [binary, "--headless", "--no-remote", "--marionette", "--profile", profile],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            marionette = Marionette(_port(process))
            try:
                marionette.call("WebDriver:NewSession")
                marionette.call("WebDriver:SetTimeouts", {"script": TIMEOUT_S * 1000})
                yield marionette
                with suppress(HostFailure):
                    marionette.call("Marionette:Quit", {"flags": ["eForceQuit"]})
            finally:
                marionette.close()
        finally:
            try:
                process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            assert process.stdout is not None
            process.stdout.close()


def _port(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if match := re.search(r"Marionette\s+INFO\s+Listening on port (\d+)", line):
            return int(match[1])
    raise HostFailure("Firefox ended: " + "".join(said))


@contextmanager
def firefox(marionette: Marionette, *, isolate: bool) -> Iterator[FirefoxHost]:
    with serving(dict(SCRIPTS), isolate=isolate) as server:
        host = FirefoxHost(marionette, server)
        yield host
        assert host.foreign == [], "the page asked for URLs outside its own server"
