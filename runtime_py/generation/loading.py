"""The decoder's part of `runtime_py.load`."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from runtime_py.chat import ChatRenderer
from runtime_py.errors import ArtifactUnsupported, InvalidInput
from runtime_py.executors.base import ExecutorLimits, KVFormat, ModelExecutor, SeqRow, Step
from runtime_py.generation.generator import GenerationInfo, Generator
from runtime_py.generation.tokenizer import TextTokenizer
from runtime_py.program import KV_BLOCK, Program, Rows

if TYPE_CHECKING:
    from runtime_py.artifact import Artifact, Generation, Manifest
    from runtime_py.engine import Engine

MAX_SEQS = 64
_STEP_TOKENS = 512
_CACHE_BYTES = 256 << 20
_MIN_CACHE_TOKENS = 2048


def generation_of(manifest: Manifest) -> Generation:
    """The manifest's section.

    Raises:
        ArtifactUnsupported: the artifact has none.
    """
    generation = manifest.generation
    if generation is None:
        raise ArtifactUnsupported(
            f"the artifact's tasks are {list(manifest.tasks)}, expected 'generate' "
            "among them: its program is a decoder"
        )
    return generation


def check_tasks(manifest: Manifest, program: Program) -> None:
    """Raises:
    ArtifactUnsupported: the manifest does not describe what the program does.
    """
    if program.is_decoder:
        generation_of(manifest)
    elif manifest.embedding is None or program.output.rows is not Rows.SEQS:
        raise ArtifactUnsupported(
            f"the artifact's tasks are {list(manifest.tasks)}, expected 'embed' among them"
        )


def decoder_limits(
    artifact: Artifact,
    threads: int,
    kv_blocks: int | None = None,
    *,
    kv_bytes: int | None = None,
    kv_format: KVFormat = "f32",
    max_seqs: int | None = None,
) -> ExecutorLimits:
    """What a step and the cache hold.

    Args:
        kv_blocks: blocks of the cache; None = what ``kv_bytes`` holds.
        kv_bytes: of the cache, rounded up to a block; None = about 256 MiB, at least 2,048
            tokens or the model's context, at most what the sequences can come to need.
        kv_format: how the cache stores numbers; "f16" takes half the bytes.
        max_seqs: sequences that run at once; None = 64.

    Raises:
        InvalidInput: a size is no whole number from 1, both sizes of the cache are set, or
            it cannot hold the goldens.
    """
    generation = generation_of(artifact.manifest)
    for name, value in (("kv_blocks", kv_blocks), ("kv_bytes", kv_bytes), ("max_seqs", max_seqs)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or value < 1
        ):
            raise InvalidInput(f"{name} is {value!r}, expected a whole number from 1")
    if kv_blocks is not None and kv_bytes is not None:
        raise InvalidInput("kv_blocks and kv_bytes are both set, expected one of them")
    seqs = MAX_SEQS if max_seqs is None else max_seqs
    if kv_blocks is None:
        size = max(generation.kv_bytes_per_token // (2 if kv_format == "f16" else 1), 1)
        if kv_bytes is None:
            least = min(_MIN_CACHE_TOKENS, generation.max_context)
            tokens = max(_CACHE_BYTES // size, least)
            tokens = min(tokens, seqs * generation.max_context)
        else:
            tokens = kv_bytes // size
        kv_blocks = max(-(-tokens // KV_BLOCK), 1)
    longest = max(len(case.token_ids) for case in artifact.goldens.cases)
    if kv_blocks * KV_BLOCK < longest:
        raise InvalidInput(
            f"the key-value cache holds {kv_blocks * KV_BLOCK} tokens, expected at least "
            f"{longest}, which the model's own check needs; give it more memory"
        )
    return ExecutorLimits(max(_STEP_TOKENS, longest), seqs, threads, 1, kv_blocks, seqs)


def check_decoder_goldens(artifact: Artifact, executor: ModelExecutor) -> float:
    """Compare the logits after each golden prompt; the worst cosine.

    Raises:
        ArtifactCorrupt: they miss the tolerance.
    """
    outputs: list[Any] = []
    for case in artifact.goldens.cases:
        count = len(case.token_ids)
        step = Step(
            array("i", case.token_ids),
            [SeqRow(0, count)],
            executor.limits.threads,
            [array("i", range(-(-count // KV_BLOCK)))],
            (),
            [count - 1],
            None,
        )
        outputs.extend(executor.run(step).output.tolist())
    return artifact.goldens.check(outputs, executor.name)


def generator_of(
    manifest: Manifest,
    program: Program,
    engine: Engine,
    tokenizer: TextTokenizer,
    template: Callable[[], ChatRenderer],
) -> Generator:
    """`Model.generate` and `Model.chat` of a loaded decoder."""
    generation = generation_of(manifest)
    chat = generation.chat_template is not None
    info = GenerationInfo(program.vocab_size, engine.max_context, generation.eos_token_ids, chat)
    return Generator(engine, tokenizer, info, template if chat else None)
