"""From an artifact to a running model."""

from __future__ import annotations

import asyncio
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from runtime_py._compat import IS_PYODIDE, Worker
from runtime_py.backends import BackendOptions, ExecutorName, make_executor
from runtime_py.batching import SchedulerConfig, TraceRecorder
from runtime_py.chat import ChatRenderer, ChatTemplate
from runtime_py.download import Progress, fetch, is_url
from runtime_py.engine import Device, Engine, cost_profile
from runtime_py.engine.hosted import checked_threads
from runtime_py.errors import Aborted, ArtifactCorrupt, InvalidInput, InvalidType
from runtime_py.executors.base import KVFormat, ModelExecutor, SeqRow, Step
from runtime_py.generation.loading import (
    check_decoder_goldens,
    check_tasks,
    generation_of,
    generator_of,
)
from runtime_py.generation.tokenizer import HFTextTokenizer, TextTokenizer
from runtime_py.info import ModelInfo
from runtime_py.model import Model
from runtime_py.program import Program
from runtime_py.tokenization import HFTokenizer, Tokenizer

if TYPE_CHECKING:
    from runtime_py.artifact import Artifact, Manifest

_MAX_SHARE = 1000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model whose backend has proved itself, before it has an engine.

    Attributes:
        words: a `Tokenizer` of an encoder, a `TextTokenizer` of a decoder.
        template: makes the chat template, when the artifact has one.
    """

    manifest: Manifest
    program: Program
    backend: ModelExecutor
    words: Tokenizer | TextTokenizer
    template: Callable[[], ChatRenderer]


async def load(
    source: str | os.PathLike[str],
    *,
    executor: ExecutorName | ModelExecutor = "auto",
    threads: int | None = None,
    config: SchedulerConfig | None = None,
    trace: str | os.PathLike[str] | TraceRecorder | None = None,
    tokenizer: Tokenizer | TextTokenizer | None = None,
    verify: bool = True,
    max_seqs: int | None = None,
    kv_blocks: int | None = None,
    kv_bytes: int | None = None,
    kv_format: KVFormat | None = None,
    torch_device: str | None = None,
    device: Device | None = None,
    share: int = 1,
    progress: Progress | None = None,
    clock: Callable[[], int] = time.monotonic_ns,
) -> Model:
    """Load an artifact, prove that the backend computes its goldens, and start an engine.

    Args:
        source: folder of an artifact that ``toolchain export`` wrote, or its http(s)
            address: then its files are downloaded into the user's cache once, each checked
            against the manifest's sha256; an interrupted download continues.
        executor: the backend; ``"auto"`` is ``"wasmtime"``, ``"reference"`` is numpy in
            float64, or torch. An executor made by the caller is used, and closed with the
            model (not when loading fails).
        threads: threads of the backend; None = the usable cores, at most 8.
        config: knobs of the scheduler.
        trace: record every scheduling decision, to this file or recorder.
        tokenizer: instead of the artifact's ``tokenizer.json``; a `Tokenizer` to embed, a
            `TextTokenizer` to generate.
        verify: compare every file's sha256 with the manifest.
        max_seqs: most sequences in a step, and of a decoder under way at once; None = 256,
            for a decoder 64.
        kv_blocks: of a decoder, blocks of 32 tokens in the key-value cache that all
            sequences share; None = what fits ``kv_bytes``.
        kv_bytes: of a decoder, memory for that cache; None = about 256 MiB.
        kv_format: of a decoder, ``"f32"`` (the default) or ``"f16"``: half the memory, and
            keys and values rounded to half precision.
        torch_device: with ``executor="reference"``, compute in float32 on this device of
            torch: ``"cpu"``, ``"cuda"``.
        device: threads and scheduler shared with other models; ``threads``, ``config``,
            ``trace`` and ``clock`` are then the device's own.
        share: weight of this model's bulk work against that of others on the device.
        progress: called with (bytes here, bytes in all) while files are downloaded, from
            other threads, one at a time.
        clock: nanoseconds, never running backwards.

    Raises:
        ArtifactMissing, ArtifactCorrupt, ArtifactUnsupported: the artifact cannot be used
            or downloaded, or the backend does not reproduce its goldens.
        InvalidInput: an argument is out of range or of the wrong type, or a backend's package
            is missing.
        OutOfMemory: the model does not fit.
    """
    _check_types(source, tokenizer, device, progress)
    shared = device is not None
    if isinstance(share, bool) or not isinstance(share, int) or not 0 < share <= _MAX_SHARE:
        raise InvalidInput(f"share is {share!r}, expected a whole number from 1 to {_MAX_SHARE}")
    if device is not None:
        if config is not None or trace is not None or threads not in (None, device.threads):
            raise InvalidInput(
                "threads, config and trace belong to the device; set them where it is made"
            )
        device.check_joinable()
    options = BackendOptions(
        executor,
        checked_threads(threads) if device is None else device.threads,
        torch_device,
        max_seqs,
        kv_blocks,
        kv_bytes,
        kv_format,
    )
    if device is None:
        device = Device(threads=options.threads, config=config, trace=trace, clock=clock)
    prepare = _prepared
    if IS_PYODIDE:
        from runtime_py.pyodide import prepare_in_page as prepare
    prepared: Prepared | None = None
    try:
        prepared = await prepare(os.fspath(source), options, tokenizer, verify, progress)
        return _started(prepared, device, share, shared=shared)
    except BaseException:
        if prepared is not None and prepared.backend is not executor:
            prepared.backend.close()
        if not shared:
            device.release()
        raise


def _check_types(source: object, tokenizer: object, device: object, progress: object) -> None:
    """Raises:
    InvalidType: one of them is something else than `load` takes.
    """
    if not isinstance(source, str | os.PathLike):
        raise InvalidType(f"source is {type(source).__name__}, expected a path or an address")
    if tokenizer is not None and not callable(getattr(tokenizer, "encode", None)):
        raise InvalidType(f"tokenizer is {type(tokenizer).__name__}, expected one that encodes")
    if device is not None and not isinstance(device, Device):
        raise InvalidType(f"device is {type(device).__name__}, expected a runtime_py.Device")
    if progress is not None and not callable(progress):
        raise InvalidType(f"progress is {type(progress).__name__}, expected a function")


def _started(prepared: Prepared, device: Device, share: int, *, shared: bool) -> Model:
    """The engine and the public face of a prepared model."""
    manifest, program, backend = prepared.manifest, prepared.program, prepared.backend
    profile, generation = manifest.cost_profile, manifest.generation
    engine = Engine(
        backend,
        program.output.width,
        profile=cost_profile(program, profile.coefficients_ns if profile else None),
        max_context=generation.max_context if generation else 0,
        device=device,
        alone=not shared,
        name=manifest.model.id if shared else "",
        share=share,
    )
    info = _info(manifest, backend, engine.max_context)
    if not program.is_decoder:
        return Model(engine, cast(Tokenizer, prepared.words), info)
    words = cast(TextTokenizer, prepared.words)
    generator = generator_of(manifest, program, engine, words, prepared.template)
    return Model(engine, None, info, generator=generator)


async def _prepared(
    source: str,
    options: BackendOptions,
    tokenizer: Tokenizer | TextTokenizer | None,
    verify: bool,
    progress: Progress | None,
) -> Prepared:
    """`_prepare`, off the loop; when cancelled, a download ends with its next piece, and what
    the thread still makes is closed."""
    worker, cancelled = Worker(), False

    def watched(here: int, total: int) -> None:
        if cancelled:
            raise Aborted("loading was cancelled; what has arrived is kept")
        if progress is not None:
            progress(here, total)

    prepared = asyncio.ensure_future(
        worker.run(_prepare, source, options, tokenizer, verify, watched)
    )
    try:
        return await asyncio.shield(prepared)
    except asyncio.CancelledError:
        cancelled = True
        prepared.add_done_callback(partial(_discard, made=options.executor))
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
    source: str,
    options: BackendOptions,
    tokenizer: Tokenizer | TextTokenizer | None,
    verify: bool,
    progress: Progress | None,
) -> Prepared:
    """Everything that blocks."""
    from runtime_py.artifact import Artifact

    path = fetch(source, progress=progress) if is_url(source) else source
    artifact = Artifact.open(path, verify=verify)
    manifest, program = artifact.manifest, artifact.program
    check_tasks(manifest, program)
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
    backend = make_executor(options, artifact)
    try:
        (check_decoder_goldens if program.is_decoder else check_goldens)(artifact, backend)
    except BaseException:
        if backend is not options.executor:
            backend.close()
        raise
    return Prepared(manifest, program, backend, tokenizer, partial(_template, artifact))


def _template(artifact: Artifact) -> ChatTemplate:
    generation = generation_of(artifact.manifest)
    source = artifact.path(generation.chat_template or "").read_text(encoding="utf-8")
    return ChatTemplate(source, bos_token=generation.bos_token, eos_token=generation.eos_token)


def _discard(prepared: asyncio.Future[Prepared], made: object) -> None:
    """Close what nobody waits for, unless it is the caller's own executor."""
    if not prepared.cancelled() and prepared.exception() is None:
        backend = prepared.result().backend
        if backend is not made:
            backend.close()


def _info(manifest: Manifest, executor: ModelExecutor, max_context: int) -> ModelInfo:
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
        max_context=max_context,
        vocab_size=manifest.limits.vocab_size,
        chat=manifest.generation is not None and manifest.generation.chat_template is not None,
        kv_blocks=limits.kv_blocks,
    )
