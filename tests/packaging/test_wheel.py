"""The wheel alone, in a fresh environment, embeds: no compiler, no torch, no checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import runtime_py as rt

ROOT = Path(__file__).parents[2]
TEXTS = ["What flies at night?", "An owl hears a mouse under the snow."]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True, capture_output=True)
    (found,) = folder.glob("*.whl")
    return found


def dependencies(*names: str) -> set[str]:
    """The distributions that ``names`` need, extras not counted."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # only needed on other platforms
        found.add(name)
        left += [re.split(r"[^\w.-]", r)[0] for r in needs if "extra ==" not in r]
    return found - {"huggingface-hub"}  # tokenizers imports it to download, and only then


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has the wheel and what its extras [native,cli] name, nothing more.

    The dependencies are linked from this environment instead of being installed again.
    """
    home = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    python = home / "bin" / "python"
    (site,) = home.glob("lib/python*/site-packages")
    for name in dependencies("tokenizers", "numpy", "wasmtime", "typer", "rich"):
        for file in metadata.files(name) or []:
            top = Path(file.locate()).parents[len(file.parts) - 2] if len(file.parts) > 1 else None
            top = top or Path(file.locate())
            if ".." not in file.parts and not (site / top.name).exists():
                (site / top.name).symlink_to(top)
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", wheel],
        check=True,
        capture_output=True,
    )
    return python


def run(python: Path, *arguments: str | Path) -> str:
    """Standard output of the isolated interpreter, started outside the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        [python, *arguments],
        cwd=python.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    wasm = {
        f"runtime_py/_wasm/volery-{v}{t}.wasm"
        for v in ("simd", "relaxed")
        for t in ("", "-threads")
    }
    assert {n for n in names if n.endswith(".wasm")} == wasm
    assert {"runtime_py/py.typed", "toolchain/py.typed"} <= names
    assert any(n.endswith("/licenses/LICENSE") for n in names)
    assert {n.split("/")[0].split("-")[0] for n in names} == {"runtime_py", "toolchain", "volery"}
    assert not any("__pycache__" in n for n in names)
    assert wheel.name.endswith("-py3-none-any.whl")
    hands = {n.removeprefix("runtime_py/_js/") for n in names if n.startswith("runtime_py/_js/")}
    libraries = {f"vendor/{n}" for n in ("tokenizers.mjs", "jinja.mjs")}
    assert {"src/python/open.js", *libraries} <= hands  # for Python in a page
    assert wheel.stat().st_size < 1_250_000


def test_embeds_in_a_fresh_environment(python: Path, minilm_artifacts: Mapping[str, Path]) -> None:
    script = f"""
import importlib.util, json, sys
import runtime_py as rt
with rt.load_sync({str(minilm_artifacts["i8"])!r}, threads=1) as model:
    vectors = model.embed({TEXTS!r})
found = [n for n in ("torch", "ziglang", "onnx", "transformers") if importlib.util.find_spec(n)]
print(json.dumps([vectors.tolist(), found, rt.__file__]))
"""
    vectors, found, where = json.loads(run(python, "-c", script))
    assert found == []
    assert not where.startswith(str(ROOT))
    with rt.load_sync(minilm_artifacts["i8"]) as model:
        assert np.array(vectors, np.float32).tobytes() == model.embed(TEXTS).tobytes()


def test_the_command_line_in_a_fresh_environment(
    python: Path, minilm_artifacts: Mapping[str, Path], tmp_path: Path
) -> None:
    source, output = tmp_path / "texts.txt", tmp_path / "out.npy"
    source.write_text("".join(t + "\n" for t in TEXTS))
    command = python.with_name("toolchain")
    run(python, command, "embed", minilm_artifacts["i8"], source, "-o", output, "--quiet")
    assert np.load(output).shape == (2, 384)
