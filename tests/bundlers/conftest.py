"""Fixtures: the packed npm package beside an application, and Chromium."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime_py.program import TensorFormat
from tests.js import hosts
from tests.js.npm import NpmPackage, installed, pack
from tests.js.tiny import write_tiny

HERE = Path(__file__).parent
BUILD_SECONDS = 300


@pytest.fixture(scope="session")
def npm_package(tmp_path_factory: pytest.TempPathFactory) -> NpmPackage:
    return pack(tmp_path_factory.mktemp("npm"))


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("artifact") / "tiny", TensorFormat.I8B32)


@pytest.fixture(scope="session")
def bundle(
    npm_package: NpmPackage, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Builds the application with a bundler, and returns the folder to be served."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node on this machine")
    installed(HERE)
    app = npm_package.node_modules.parent / "app"
    shutil.copytree(HERE / "app", app)

    def build(bundler: str) -> Path:
        output = tmp_path_factory.mktemp(bundler)
        done = subprocess.run(
            [node, str(HERE / "build.js"), bundler, str(app), str(output)],
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
            cwd=HERE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return output

    return build


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with hosts.chromium_browser() as browser:
        yield browser
