"""Reads a model's sentence-transformers files into an `EmbeddingPipeline`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from runtime_py.program import PoolMode
from toolchain.sources.pipeline.from_graph import config_from_graph
from toolchain.sources.pipeline.limits import max_positions, max_tokens, sentence_config
from toolchain.sources.pipeline.modules import read_modules
from toolchain.sources.pipeline.types import EmbeddingPipeline, HeadModule, Pooling
from toolchain.sources.source import ModelSource, read_json

_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")


def read_pipeline(source: ModelSource) -> EmbeddingPipeline:
    """What follows the transformer, the prompts, and every length limit.

    A directory without modules.json is pooled by the mean, as sentence-transformers
    does; ``notes`` says so.

    Raises:
        ArtifactMissing, ArtifactCorrupt, ArtifactUnsupported: names the file and the field.
    """
    if source.task != "embed":
        raise ArtifactUnsupported(
            f"{source.model_id}: {source.architecture} is a language model, which has no "
            "embedding pipeline; expected an encoder"
        )
    root = source.path
    config = source.config()
    notes: list[str] = []
    if not config and source.onnx_path is not None:
        config = config_from_graph(source.onnx_path)
        notes.append("no config.json: sizes and positions are read off the graph")
    hidden = _hidden_size(config, root)
    modules: tuple[HeadModule, ...]
    if (root / "modules.json").is_file():
        modules, include_prompt, folder = read_modules(root, hidden)
    else:
        modules, include_prompt, folder = (Pooling((PoolMode.MEAN,)),), True, root
        notes.append("no modules.json: mean pooling, as sentence-transformers does")
    if folder.resolve() != root.resolve():
        raise ArtifactUnsupported(
            f"modules.json keeps the transformer in {folder.name!r}, "
            "expected it beside modules.json"
        )
    tokens, tokens_source = max_tokens(folder, config)
    prompts, default_prompt, similarity = _prompts(root)
    _, own = sentence_config(folder)
    return EmbeddingPipeline(
        hidden_size=hidden,
        modules=modules,
        max_tokens=tokens,
        max_tokens_source=tokens_source,
        max_positions=max_positions(config),
        include_prompt=include_prompt,
        prompts=prompts,
        default_prompt_name=default_prompt,
        similarity=similarity,
        do_lower_case=bool(own.get("do_lower_case", False)),
        vocab_size=config.get("vocab_size"),
        pad_token_id=config.get("pad_token_id"),
        notes=tuple(notes),
    )


def _hidden_size(config: dict[str, Any], root: Path) -> int:
    for key in ("hidden_size", "dim", "d_model", "n_embd"):
        value = config.get(key)
        if isinstance(value, int) and value > 0:
            return value
    raise ArtifactCorrupt(
        f"{root / 'config.json'} gives no hidden size, expected hidden_size (or dim, d_model)"
    )


def _prompts(root: Path) -> tuple[dict[str, str], str | None, str]:
    path = root / "config_sentence_transformers.json"
    if not path.is_file():
        return {}, None, "cosine"
    config = read_json(path)
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ArtifactCorrupt(f"{path}: prompts is no map from names to texts")
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ArtifactCorrupt(
            f"{path}: default_prompt_name {default!r} is none of {sorted(prompts)}"
        )
    similarity = config.get("similarity_fn_name") or "cosine"
    if similarity not in _SIMILARITIES:
        raise ArtifactUnsupported(
            f"{path}: similarity {similarity!r}; supported: {', '.join(_SIMILARITIES)}"
        )
    return dict(prompts), default, similarity
