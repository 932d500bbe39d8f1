"""One name in, one model directory out."""

from __future__ import annotations

import os
from pathlib import Path

from runtime_py.errors import ArtifactMissing, InvalidInput
from toolchain.sources.architectures import check_architecture
from toolchain.sources.hub import REPO_ID, from_hub
from toolchain.sources.packages import find_package
from toolchain.sources.source import ModelSource, SourceKind, card_license, read_json


def resolve(
    spec: str,
    *,
    revision: str | None = None,
    offline: bool | None = None,
    cache_dir: str | Path | None = None,
) -> ModelSource:
    """Find the model that ``spec`` names.

    Tried in this order: a directory (Hugging Face or sentence-transformers layout), a
    ``.onnx`` file (or a directory that holds only one) with ``tokenizer.json`` beside it,
    a ``.gguf`` file (or a directory that holds only one), an installed model package, and
    the hub. A ``revision`` names a hub commit, so it
    skips installed packages.

    Args:
        revision: branch, tag or commit on the hub.
        offline: True uses the local cache only, False asks the hub, None follows
            ``HF_HUB_OFFLINE``.
        cache_dir: hub cache; None is huggingface_hub's own.

    Raises:
        ArtifactMissing: nothing of that name can be found, or a file it needs is missing.
        ArtifactCorrupt: its configuration cannot be read.
        ArtifactUnsupported: its architecture cannot be exported (weights stay unread).
        InvalidInput: the name can be neither a path nor a hub id.
    """
    if not spec.strip():
        raise InvalidInput("the model is an empty string, expected a path, a name or a hub id")
    path = Path(spec).expanduser()
    if path.is_file() and path.suffix == ".onnx":
        return _onnx(path)
    if path.is_file() and path.suffix == ".gguf":
        return _gguf("gguf", path)
    if path.is_dir():
        return _directory(path)
    if _looks_like_path(spec):
        raise ArtifactMissing(
            f"{spec} does not exist; expected a model directory, a .onnx or .gguf file, "
            "an installed model's name or a hub id"
        )
    if revision is None:
        package = find_package(spec)
        if package is not None and package.path.suffix == ".gguf":
            return _gguf("package", package.path, package.model_id)
        if package is not None:
            config = read_json(package.path / "config.json")
            return ModelSource(
                "package",
                package.path,
                package.model_id,
                card_license(package.path),
                None,
                check_architecture(config, package.distribution),
            )
    if not REPO_ID.match(spec):
        raise InvalidInput(f"{spec!r} is neither an existing path nor a hub id (owner/name)")
    return from_hub(
        spec,
        revision=revision,
        offline=offline,
        cache_dir=Path(cache_dir) if cache_dir is not None else None,
    )


def _directory(path: Path) -> ModelSource:
    graphs = sorted(path.glob("*.onnx"))
    weights = [*path.glob("*.safetensors"), *path.glob("*.bin"), *path.glob("*.index.json")]
    if graphs and not weights:
        model = path / "model.onnx"
        return _onnx(model if model in graphs else graphs[0])
    single = sorted(path.glob("*.gguf"))
    if len(single) == 1 and not weights:
        return _gguf("gguf", single[0])
    config_path = path / "config.json"
    if not config_path.exists() and (path / "0_Transformer" / "config.json").exists():
        raise ArtifactMissing(
            f"{path} keeps its transformer in 0_Transformer; give a model saved by "
            "sentence-transformers 2 or later"
        )
    config = read_json(config_path)
    architecture = check_architecture(config, str(path))
    if not weights:
        raise ArtifactMissing(
            f"{path} holds no weights, expected model.safetensors or pytorch_model.bin"
        )
    return ModelSource(
        "directory", path, _directory_id(path, config), card_license(path), None, architecture
    )


def _onnx(graph: Path) -> ModelSource:
    path = graph.parent
    if not (path / "tokenizer.json").is_file() and (path.parent / "tokenizer.json").is_file():
        path = path.parent  # the hub's layout: onnx/model.onnx under the model directory
    if not (path / "tokenizer.json").is_file():
        raise ArtifactMissing(
            f"{graph} has no tokenizer.json beside it; copy the model's tokenizer.json there"
        )
    config = read_json(path / "config.json") if (path / "config.json").exists() else {}
    architecture = config.get("model_type")
    return ModelSource(
        "onnx",
        path,
        _directory_id(path, config),
        card_license(path),
        None,
        architecture if isinstance(architecture, str) else "unknown",
        graph,
    )


def _gguf(kind: SourceKind, file: Path, model_id: str | None = None) -> ModelSource:
    from toolchain.sources.gguf import GgufFile, hf_config, license_of, name_of

    gguf = GgufFile(file)
    config = hf_config(gguf)
    return ModelSource(
        kind,
        file.parent,
        model_id or name_of(gguf),
        license_of(gguf),
        None,
        check_architecture(config, str(file)),
        gguf_path=file,
    )


def _directory_id(path: Path, config: dict[str, object]) -> str:
    """The folder's name; ``_name_or_path`` often names the model it was trained from."""
    return path.resolve().name or str(config.get("_name_or_path") or "model")


def _looks_like_path(spec: str) -> bool:
    return (
        spec.startswith((".", "~", os.sep))
        or spec.endswith((".onnx", ".gguf"))
        or spec.count("/") > 1
    ) or os.sep * 2 in spec
