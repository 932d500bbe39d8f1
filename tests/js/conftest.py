"""Fixtures: the JavaScript hosts, the wasm builds in the npm package, the op cases."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from runtime_py.program import TensorFormat
from tests.js import hosts
from tests.js.hosts import ROOT, Host, ProcessHost
from tests.js.tiny import write_tiny, write_tiny_decoder
from tests.ops.write_cases import write_cases

BUILT = ROOT / "runtime_py" / "_wasm"
PACKAGED = ROOT / "workers" / "wasm"
HOSTS = ("node24", "node20", "deno", "chromium", "chromium-not-isolated")


@pytest.fixture(scope="session")
def packaged_wasm() -> Path:
    """The npm package's ``wasm`` folder, filled with the current builds."""
    PACKAGED.mkdir(exist_ok=True)
    with FileLock(ROOT / "build" / "packaged_wasm.lock"):
        built = sorted(BUILT.glob("volery-*.wasm"))
        assert len(built) == 4, "the wasm builds are missing; run `make wasm`"
        for file in built:
            target = PACKAGED / file.name
            if not target.exists() or target.read_bytes() != file.read_bytes():
                partial = target.with_suffix(".partial")
                shutil.copyfile(file, partial)
                partial.replace(target)
    return PACKAGED


# Not for the session: while playwright's synchronous interface is open, its thread counts as
# inside a running event loop, and other modules' tests could not start one of theirs.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with hosts.chromium_browser() as browser:
        yield browser


@pytest.fixture(scope="module", params=HOSTS)
def host(request: pytest.FixtureRequest, packaged_wasm: Path) -> Iterator[Host]:
    """Every host in turn."""
    match request.param:
        case "node24":
            yield hosts.node24()
        case "node20":
            yield hosts.node20()
        case "deno":
            yield hosts.deno()
        case name:
            browser = request.getfixturevalue("browser")
            with hosts.chromium(browser, isolate=name == "chromium") as host:
                yield host


@pytest.fixture(scope="session")
def node(packaged_wasm: Path) -> ProcessHost:
    return hosts.node24()


@pytest.fixture(scope="session")
def op_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table of op cases as files."""
    folder = tmp_path_factory.mktemp("op_cases")
    write_cases(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny artifacts by the name of their weight format."""
    root = tmp_path_factory.mktemp("tiny")
    formats = (TensorFormat.F32, TensorFormat.F16, TensorFormat.I8B32, TensorFormat.I4B32)
    return {fmt.name: write_tiny(root / fmt.name, fmt) for fmt in formats}


@pytest.fixture(scope="session")
def tiny_decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny decoder's artifact with exact 8-bit weights and 16-bit activations."""
    return write_tiny_decoder(tmp_path_factory.mktemp("decoder") / "s8", TensorFormat.S8B32, 16)


def cases_in(folder: Path) -> list[str]:
    names: list[str] = json.loads((folder / "index.json").read_text())
    return names


@pytest.fixture(scope="session")
def case_data(op_cases: Path) -> dict[str, dict[str, Any]]:
    """The cases of one step, by their folder."""
    names = [*cases_in(op_cases), *(f"generation/{n}" for n in cases_in(op_cases / "generation"))]
    return {name: json.loads((op_cases / name / "case.json").read_text()) for name in names}


@pytest.fixture(scope="session")
def steps_data(op_cases: Path) -> dict[str, dict[str, Any]]:
    """The cases of a decoder's steps, by their folder."""
    names = [f"steps/{name}" for name in cases_in(op_cases / "steps")]
    return {name: json.loads((op_cases / name / "case.json").read_text()) for name in names}
