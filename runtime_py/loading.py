"""From an artifact to a running model."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from runtime_py._compat import Worker, default_threads
from runtime_py.batching import SchedulerConfig, TraceRecorder
from runtime_py.engine import Engine, cost_profile
from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported, InvalidInput, InvalidType
from runtime_py.executors.base import ExecutorLimits, ModelExecutor, SeqRow, Step
from runtime_py.generation.loading import (
    check_decoder_goldens,
    decoder_limits,
    generation_of,
    generator_of,
)
from runtime_py.generation.tokenizer import HFTextTokenizer, TextTokenizer
from runtime_py.info import ModelInfo
from runtime_py.model import Model
from runtime_py.program import Program, Rows
from runtime_py.tokenization import HFTokenizer, Tokenizer

if TYPE_CHECKING:
    from runtime_py.artifact import Artifact, Manifest

ExecutorName = Literal["auto", "wasmtime", "reference"]

_TOKENS_PER_THREAD = 512  # about twice what a thread does in the default step_target_ms
_MAX_STEP_TOKENS = 4096
_MAX_STEP_SEQS = 256
_MAX_THREADS = 256


async def load(
    source: str | os.PathLike[str],
    *,
    executor: ExecutorName | ModelExecutor = "auto",
    threads: int | None = None,
    config: SchedulerConfig | None = None,
    trace: str | os.PathLike[str] | TraceRecorder | None = None,
    tokenizer: Tokenizer | TextTokenizer | None = None,
    verify: bool = True,
    kv_blocks: int | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> Model:
    """Load an artifact, prove that the backend computes its goldens, and start an engine.

    Args:
        source: folder of an artifact that ``toolchain export`` wrote.
        executor: the backend; ``"auto"`` is ``"wasmtime"``, ``"reference"`` is numpy in
            float64. An executor made by the caller is used, and closed with the model
            (not when loading fails).
        threads: threads of the backend; None = the usable cores, at most 8.
        config: knobs of the scheduler.
        trace: record every scheduling decision, to this file or recorder.
        tokenizer: instead of the artifact's ``tokenizer.json``; a `Tokenizer` to embed, a
            `TextTokenizer` to generate.
        verify: compare every file's sha256 with the manifest.
        kv_blocks: of a decoder, blocks of 32 tokens in the key-value cache that all
            sequences share; None = about 256 MiB.
        clock: nanoseconds, never running backwards.

    Raises:
        ArtifactMissing, ArtifactCorrupt, ArtifactUnsupported: the artifact cannot be used,
            or the backend does not reproduce its goldens.
        InvalidInput: an argument is out of range, or a backend's package is missing.
        OutOfMemory: the model does not fit.
    """
    path = os.fspath(source)
    if "://" in path:
        raise ArtifactUnsupported(
            f"{path!r} is a URL, expected a folder; download the artifact and load its folder"
        )
    threads = default_threads() if threads is None else threads
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 < threads <= _MAX_THREADS:
        raise InvalidInput(f"threads is {threads!r}, expected 1 to {_MAX_THREADS}")
    recorder, close_trace = _open_trace(trace)
    try:
        artifact, backend, words = await _prepared(
            path, executor, threads, tokenizer, verify, kv_blocks
        )
    except BaseException:
        close_trace()
        raise
    profile = artifact.manifest.cost_profile
    engine = Engine(
        backend,
        artifact.program.output.width,
        config=config,
        profile=cost_profile(artifact.program, profile.coefficients_ns if profile else None),
        recorder=recorder,
        clock=clock,
        max_context=artifact.manifest.generation.max_context if artifact.manifest.generation else 0,
    )
    info = _info(artifact.manifest, backend)
    if artifact.program.is_decoder:
        generator = generator_of(artifact, engine, cast(TextTokenizer, words))
        return Model(engine, None, info, generator=generator, on_close=close_trace)
    return Model(engine, cast(Tokenizer, words), info, on_close=close_trace)


async def _prepared(
    path: str,
    executor: ExecutorName | ModelExecutor,
    threads: int,
    tokenizer: Tokenizer | TextTokenizer | None,
    verify: bool,
    kv_blocks: int | None,
) -> tuple[Artifact, ModelExecutor, Tokenizer | TextTokenizer]:
    """`_prepare`, off the loop; when cancelled, what the thread still makes is closed."""
    worker = Worker()
    prepared = asyncio.ensure_future(
        worker.run(_prepare, path, executor, threads, tokenizer, verify, kv_blocks)
    )
    try:
        return await asyncio.shield(prepared)
    except asyncio.CancelledError:
        if not isinstance(executor, ModelExecutor):
            prepared.add_done_callback(_discard)
        raise
    finally:
        worker.close(wait=prepared.done())


def check_goldens(artifact: Artifact, executor: ModelExecutor) -> float:
    """Run the artifact's goldens; the worst cosine.

    Raises:
        ArtifactCorrupt: a vector misses the tolerance.
    """
    limits = executor.limits
    outputs: list[Any] = []
    ids, rows = array("i"), list[SeqRow]()

    def run() -> None:
        output = executor.run(Step(ids, rows, limits.threads)).output
        outputs.extend(output.tolist())

    for case in artifact.goldens.cases:
        if rows and (
            len(rows) == limits.max_seqs or len(ids) + len(case.token_ids) > limits.max_tokens
        ):
            run()
            ids, rows = array("i"), []
        rows.append(SeqRow(len(ids), len(case.token_ids)))
        ids.extend(case.token_ids)
    run()
    return artifact.goldens.check(outputs, executor.name)


def _prepare(
    path: str,
    executor: ExecutorName | ModelExecutor,
    threads: int,
    tokenizer: Tokenizer | TextTokenizer | None,
    verify: bool,
    kv_blocks: int | None,
) -> tuple[Artifact, ModelExecutor, Tokenizer | TextTokenizer]:
    """Everything that blocks."""
    from runtime_py.artifact import Artifact

    artifact = Artifact.open(path, verify=verify)
    manifest, program = artifact.manifest, artifact.program
    if program.is_decoder:
        generation_of(artifact)
    elif manifest.embedding is None or program.output.rows is not Rows.SEQS:
        raise ArtifactUnsupported(
            f"the artifact's tasks are {list(manifest.tasks)}, expected 'embed' among them"
        )
    if tokenizer is None:
        try:
            text = artifact.path("tokenizer.json").read_text(encoding="utf-8")
        except UnicodeDecodeError as e:
            raise ArtifactCorrupt(
                f"tokenizer.json is not UTF-8 at byte {e.start}; export the model again"
            ) from None
        if program.is_decoder:
            tokenizer = HFTextTokenizer(text)
        else:
            tokenizer = HFTokenizer(text, manifest.limits.max_tokens)
    backend = _executor(executor, artifact, program, threads, kv_blocks)
    try:
        (check_decoder_goldens if program.is_decoder else check_goldens)(artifact, backend)
    except BaseException:
        if backend is not executor:
            backend.close()
        raise
    return artifact, backend, tokenizer


def _discard(
    prepared: asyncio.Future[tuple[Artifact, ModelExecutor, Tokenizer | TextTokenizer]],
) -> None:
    if not prepared.cancelled() and prepared.exception() is None:
        prepared.result()[1].close()


def _executor(
    executor: ExecutorName | ModelExecutor,
    artifact: Artifact,
    program: Program,
    threads: int,
    kv_blocks: int | None,
) -> ModelExecutor:
    sizes = decoder_limits(artifact, threads, kv_blocks) if program.is_decoder else None
    max_tokens = max(
        artifact.manifest.limits.max_tokens,
        min(_TOKENS_PER_THREAD * threads, _MAX_STEP_TOKENS),
        *(len(case.token_ids) for case in artifact.goldens.cases),
    )
    if executor in ("auto", "wasmtime"):
        try:
            from runtime_py.executors.wasmtime import WasmtimeExecutor
        except ImportError as e:
            raise _not_installed("wasmtime", e) from None
        if sizes is not None:
            return WasmtimeExecutor.from_weights(
                program,
                artifact.weights,
                threads=threads,
                max_tokens=sizes.max_tokens,
                max_seqs=sizes.max_seqs,
                kv_blocks=sizes.kv_blocks,
            )
        return WasmtimeExecutor.from_weights(
            program,
            artifact.weights,
            threads=threads,
            max_tokens=max_tokens,
            max_seqs=_MAX_STEP_SEQS,
            concurrent_steps=threads,
        )
    if executor == "reference":
        try:
            from runtime_py.executors.reference import ReferenceExecutor
        except ImportError as e:
            raise _not_installed("reference", e) from None
        limits = ExecutorLimits(max_tokens, _MAX_STEP_SEQS, threads=1, concurrent_steps=1)
        if sizes is not None:
            limits = replace(sizes, threads=1)
        return ReferenceExecutor.from_weights(program, artifact.weights, limits=limits)
    if not isinstance(executor, ModelExecutor):
        raise InvalidType(
            f"executor is {executor!r}, expected 'auto', 'wasmtime', 'reference' or an executor"
        )
    return executor


def _not_installed(name: str, error: ImportError) -> InvalidInput:
    return InvalidInput(
        f"executor is {name!r}, which cannot be imported ({error}); install volery[native]"
    )


def _open_trace(
    trace: str | os.PathLike[str] | TraceRecorder | None,
) -> tuple[TraceRecorder | None, Callable[[], object]]:
    """The recorder, and what to call when the model is closed."""
    if trace is None or isinstance(trace, TraceRecorder):
        return trace, lambda: None
    try:
        file = open(trace, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
    except OSError as e:
        raise InvalidInput(
            f"the trace {os.fspath(trace)!r} cannot be written ({e.strerror}); choose another file"
        ) from None
    return TraceRecorder(file.write), file.close


def _info(manifest: Manifest, executor: ModelExecutor) -> ModelInfo:
    embedding = manifest.embedding
    limits = executor.limits
    return ModelInfo(
        id=manifest.model.id,
        dimensions=embedding.dimensions if embedding else 0,
        normalized=embedding is not None and embedding.normalized,
        max_tokens=manifest.limits.max_tokens,
        include_prompt=embedding is None or embedding.include_prompt,
        prompts=embedding.prompts if embedding else {},
        default_prompt_name=embedding.default_prompt_name if embedding else None,
        quantization=manifest.quantization.name,
        executor=executor.name,
        variant=getattr(executor, "variant", None),
        threads=limits.threads,
        max_step_tokens=limits.max_tokens,
        max_step_seqs=limits.max_seqs,
    )
