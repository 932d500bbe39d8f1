"""The model that is measured, on any backend, with the backend itself in reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime_py import Model, ModelInfo, load
from runtime_py.artifact import Artifact, Manifest
from runtime_py.backends import BackendOptions, make_executor
from runtime_py.engine import Engine
from runtime_py.engine.hosted import checked_threads
from runtime_py.errors import ArtifactMissing, ArtifactUnsupported, InvalidInput
from runtime_py.executors.base import ExecutorLimits, KVFormat, ModelExecutor
from runtime_py.tokenization import HFTokenizer

_ORT_SEQS = 64


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the command line asked for.

    Attributes:
        executor: ``auto``, ``wasmtime``, ``reference`` or ``onnxruntime``.
        device: ``cpu`` or ``cuda``: for torch or ONNX Runtime; None = the backend's own.
        onnx: graph for ``onnxruntime``; None = the one that ``export --keep-onnx`` left.
    """

    executor: str
    threads: int | None = None
    device: str | None = None
    onnx: Path | None = None
    max_seqs: int | None = None
    kv_format: KVFormat | None = None
    kv_bytes: int | None = None


def open_executor(folder: Path, options: BenchOptions) -> tuple[Artifact, ModelExecutor]:
    """The artifact and a backend with its model.

    Raises:
        ArtifactError, InvalidInput, OutOfMemory: the backend cannot run the model.
    """
    artifact = Artifact.open(folder)
    if options.executor == "onnxruntime":
        return artifact, _onnxruntime(artifact, options)
    backend = BackendOptions(
        options.executor,  # type: ignore[arg-type]
        checked_threads(options.threads),
        options.device,
        options.max_seqs,
        kv_bytes=options.kv_bytes,
        kv_format=options.kv_format,
    )
    return artifact, make_executor(backend, artifact)


async def open_model(artifact: Artifact, executor: ModelExecutor) -> Model:
    """A model on ``executor``, which is closed with it.

    ONNX Runtime computes the f32 graph, so the quantized model's goldens do not hold there.
    """
    if executor.name != "onnxruntime":
        return await load(artifact.directory, executor=executor, verify=False)
    manifest = artifact.manifest
    assert manifest.embedding is not None
    text = artifact.path("tokenizer.json").read_text("utf-8")
    info = ModelInfo(
        manifest.model.id,
        manifest.embedding.dimensions,
        manifest.embedding.normalized,
        manifest.limits.max_tokens,
        quantization="f32",
        executor=executor.name,
        threads=executor.limits.threads,
        vocab_size=manifest.limits.vocab_size,
    )
    engine = Engine(executor, manifest.embedding.dimensions)
    return Model(engine, HFTokenizer(text, manifest.limits.max_tokens), info)


def _onnxruntime(artifact: Artifact, options: BenchOptions) -> ModelExecutor:
    manifest = artifact.manifest
    if manifest.embedding is None:
        raise InvalidInput(
            "onnxruntime runs the graphs of embedding models only; use --executor reference"
        )
    try:
        from runtime_py.executors.onnxruntime import EmbeddingSpec, OnnxRuntimeExecutor
    except ImportError as e:
        raise InvalidInput(
            f"onnxruntime cannot be imported ({e}); install volery[onnxruntime]"
        ) from None
    if "dense" in manifest.embedding.pooling:
        raise ArtifactUnsupported("onnxruntime does not have this model's dense layer")
    graph = options.onnx or artifact.directory.with_name(f"{artifact.directory.name}.onnx") / (
        "model.onnx"
    )
    if not graph.is_file():
        raise ArtifactMissing(
            f"there is no graph at {graph}; export with --keep-onnx, or name one with --onnx"
        )
    providers = ["CUDAExecutionProvider" if options.device == "cuda" else "CPUExecutionProvider"]
    threads = checked_threads(options.threads)
    return OnnxRuntimeExecutor.from_onnx(
        graph,
        EmbeddingSpec(manifest.embedding.pooling, manifest.embedding.normalized),
        vocab_size=manifest.limits.vocab_size,
        max_positions=manifest.limits.max_positions,
        limits=ExecutorLimits(
            _ORT_SEQS * manifest.limits.max_tokens, options.max_seqs or _ORT_SEQS, 1, 1
        ),
        providers=providers,
        threads=threads,
    )


def facts(manifest: Manifest, executor: ModelExecutor, threads: int | None) -> Mapping[str, Any]:
    """What a report says about the model and the backend.

    Args:
        threads: that were asked for; ONNX Runtime's executor does not tell how many it has.
    """
    graph = executor.name == "onnxruntime"
    return {
        "model": manifest.model.id,
        "kind": "decoder" if executor.limits.kv_blocks else "encoder",
        "quantization": "f32" if graph else manifest.quantization.name,
        "executor": executor.name,
        "variant": getattr(executor, "variant", None),
        "threads": checked_threads(threads) if graph else executor.limits.threads,
    }
