"""Which backend runs a model, and how large it is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from runtime_py.errors import InvalidInput, InvalidType
from runtime_py.executors.base import ExecutorLimits, KVFormat, ModelExecutor
from runtime_py.generation.loading import decoder_limits

if TYPE_CHECKING:
    from runtime_py.artifact import Artifact

ExecutorName = Literal["auto", "wasmtime", "reference"]

_TOKENS_PER_THREAD = 512  # about twice what a thread does in the default step_target_ms
_MAX_STEP_TOKENS = 4096
_MAX_STEP_SEQS = 256


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """What `runtime_py.load` was asked for; see there."""

    executor: ExecutorName | ModelExecutor
    threads: int
    torch_device: str | None = None
    max_seqs: int | None = None
    kv_blocks: int | None = None
    kv_bytes: int | None = None
    kv_format: KVFormat | None = None


def make_executor(options: BackendOptions, artifact: Artifact) -> ModelExecutor:
    """The artifact's model on the backend that was asked for, not yet checked.

    Raises:
        InvalidInput, InvalidType: an option is out of range or of the wrong kind of model,
            or a backend's package is missing.
        ArtifactError: the backend refuses the model.
        OutOfMemory: it does not fit.
    """
    if options.kv_format not in (None, "f32", "f16"):
        raise InvalidInput(f"kv_format is {options.kv_format!r}, expected 'f32' or 'f16'")
    if options.torch_device is not None and options.executor != "reference":
        raise InvalidInput(
            f"torch_device is {options.torch_device!r}, but executor {options.executor!r} does "
            "not use torch; load with executor='reference'"
        )
    limits = _limits(options, artifact)
    kv_format = options.kv_format or "f32"
    match options.executor:
        case "auto" | "wasmtime":
            return _wasmtime(artifact, limits, kv_format)
        case "reference":
            return _reference(artifact, limits, kv_format, options.torch_device)
        case ModelExecutor() as made:
            return made
    raise InvalidType(
        f"executor is {options.executor!r}, expected 'auto', 'wasmtime', 'reference' or an executor"
    )


def _limits(options: BackendOptions, artifact: Artifact) -> ExecutorLimits:
    """What the backend's steps shall hold."""
    if artifact.program.is_decoder:
        return decoder_limits(
            artifact,
            options.threads,
            options.kv_blocks,
            kv_bytes=options.kv_bytes,
            kv_format=options.kv_format or "f32",
            max_seqs=options.max_seqs,
        )
    for name in ("kv_blocks", "kv_bytes", "kv_format"):
        if getattr(options, name) is not None:
            raise InvalidInput(
                f"{name} is set, but the model makes embeddings and has no key-value cache; "
                "leave it out"
            )
    seqs = options.max_seqs
    if seqs is None:
        seqs = _MAX_STEP_SEQS
    elif isinstance(seqs, bool) or not isinstance(seqs, int) or seqs < 1:
        raise InvalidInput(f"max_seqs is {seqs!r}, expected a whole number from 1")
    max_tokens = max(
        artifact.manifest.limits.max_tokens,
        min(_TOKENS_PER_THREAD * options.threads, _MAX_STEP_TOKENS),
        *(len(case.token_ids) for case in artifact.goldens.cases),
    )
    return ExecutorLimits(max_tokens, seqs, options.threads, options.threads)


def _wasmtime(artifact: Artifact, limits: ExecutorLimits, kv_format: KVFormat) -> ModelExecutor:
    try:
        from runtime_py.executors.wasmtime import WasmtimeExecutor
    except ImportError as e:
        raise _not_installed("wasmtime", e) from None
    return WasmtimeExecutor.from_weights(
        artifact.program,
        artifact.weights,
        threads=limits.threads,
        max_tokens=limits.max_tokens,
        max_seqs=limits.max_seqs,
        concurrent_steps=limits.concurrent_steps,
        kv_blocks=limits.kv_blocks,
        kv_format=kv_format,
    )


def _reference(
    artifact: Artifact, limits: ExecutorLimits, kv_format: KVFormat, torch_device: str | None
) -> ModelExecutor:
    try:
        from runtime_py.executors.reference import ReferenceExecutor
    except ImportError as e:
        raise _not_installed("reference", e) from None
    return ReferenceExecutor.from_weights(
        artifact.program,
        artifact.weights,
        # A GPU computes in float64 at a thirtieth of its speed
        dtype="float64" if torch_device is None else "float32",
        limits=replace(limits, threads=1, concurrent_steps=1),
        kv_format=kv_format,
        device=torch_device,
    )


def _not_installed(name: str, error: ImportError) -> InvalidInput:
    return InvalidInput(
        f"executor is {name!r}, which cannot be imported ({error}); install volery[native]"
    )
