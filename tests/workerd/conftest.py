"""Fixtures: workerd with a Worker that uses the packed npm package."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.js.npm import NpmPackage, installed, pack

HERE = Path(__file__).parent
Requests = list[tuple[str, dict[str, Any]]]


class Workerd:
    """A running workerd. Requests sent together are handled together."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.peak_bytes = 0
        """Peak of its resident memory after the last requests."""

    def send(self, requests: Requests) -> list[dict[str, Any]]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(requests) + "\n")
        stdin.flush()
        line = stdout.readline()
        assert line, "workerd ended"
        answer = json.loads(line)
        self.peak_bytes = answer["peak"]
        errors = [a["error"] for a in answer["answers"] if "error" in a]
        assert errors == []
        return [a["result"] for a in answer["answers"]]


@pytest.fixture(scope="session")
def npm_package(tmp_path_factory: pytest.TempPathFactory) -> NpmPackage:
    return pack(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="session")
def workerd(npm_package: NpmPackage, minilm_artifacts: Mapping[str, Path]) -> Callable[..., Any]:
    """Starts workerd; ``stores=False`` leaves R2 and KV empty."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    installed(HERE)

    @contextmanager
    def start(*, stores: bool = True) -> Iterator[Workerd]:
        command = [node, str(HERE / "run.js"), str(npm_package.node_modules)]
        command += [str(minilm_artifacts["i8"]), *(["--stores"] if stores else [])]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE
        )
        try:
            yield Workerd(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                assert process.wait(timeout=120) == 0
            finally:
                process.kill()
                assert process.stdout is not None
                process.stdout.close()

    return start


@contextmanager
def wrangler_dev(project: Path) -> Iterator[str]:
    """``wrangler dev --local`` on the project, which answers at the address given."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wrangler = installed(HERE) / ".bin" / "wrangler"
    # Its notes about updates and places would be fetched from elsewhere.
    quiet = {
        "WRANGLER_SEND_METRICS": "false",
        "CLOUDFLARE_CF_FETCH_ENABLED": "false",
        "WRANGLER_LOG": "log",
        "CI": "1",
    }
    process = subprocess.Popen(
        [str(wrangler), "dev", "--local", "--ip", "127.0.0.1", "--port", str(port)],
        cwd=project,
        env={**os.environ, **quiet},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    said = []
    try:
        for line in process.stdout:
            said.append(line)
            if "Ready on" in line:
                break
        else:
            pytest.fail("".join(said))
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=120)
        process.stdout.close()
