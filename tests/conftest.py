"""Fixtures that several parts share: a real model, exported once for every test process."""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from filelock import FileLock

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "test-artifacts"
MODEL = "all-MiniLM-L6-v2"
KEEP_SECONDS = 3 * 3600
EXPORT_SECONDS = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test asks for the artifacts first also waits for four exports."""
    for item in items:
        if "minilm_artifacts" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(EXPORT_SECONDS))


@pytest.fixture(scope="session")
def minilm_source() -> Path:
    """The model's directory: weights, configuration and tokenizer."""
    from toolchain.sources import resolve

    return resolve(MODEL).path


@pytest.fixture(scope="session")
def minilm_artifacts() -> Mapping[str, Path]:
    """Scheme -> artifact of all-MiniLM-L6-v2, exported once per state of the sources.

    Test processes and later runs share the artifacts; do not write into them.
    """
    from toolchain.pipeline import build_artifact
    from toolchain.prepare import prepare_model
    from toolchain.quantize import SCHEMES
    from toolchain.stages import Stages

    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / sources_digest()
    with FileLock(str(CACHE / "lock")):
        missing = [s for s in SCHEMES if not (folder / s / "manifest.json").is_file()]
        if missing:
            _remove_unused()
            scratch = folder / "graph"
            scratch.mkdir(parents=True, exist_ok=True)
            prepared = prepare_model(MODEL, scratch, Stages(None))
            for scheme in missing:
                build_artifact(prepared, folder / scheme, scheme=scheme)
            shutil.rmtree(scratch)
        folder.touch()  # in use: see `_remove_unused`
    return {s: folder / s for s in SCHEMES}


def _remove_unused() -> None:
    """Drop artifacts of source states that no test run has asked for lately."""
    for old in CACHE.iterdir():
        if old.is_dir() and time.time() - old.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(old)


@cache
def sources_digest() -> str:
    """Digest of every source that an artifact's bytes or checks depend on."""
    digest = hashlib.sha256()
    parts = ("toolchain", "runtime_py/artifact", "runtime_py/program", "runtime_py/executors")
    files = [p for part in parts for p in (ROOT / part).rglob("*") if p.suffix in {".py", ".txt"}]
    files += [p for p in (ROOT / "wasm").rglob("*") if p.suffix in {".c", ".h"}]
    skipped = (ROOT / "toolchain" / "cli", ROOT / "toolchain" / "embedding")
    for path in sorted(files):
        if not any(s in path.parents for s in skipped):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
