"""The decoder's part of `runtime_py.load`."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

from runtime_py.chat import ChatTemplate
from runtime_py.errors import ArtifactUnsupported, InvalidInput
from runtime_py.executors.base import ExecutorLimits, ModelExecutor, SeqRow, Step
from runtime_py.generation.generator import GenerationInfo, Generator
from runtime_py.generation.tokenizer import TextTokenizer
from runtime_py.program import KV_BLOCK

if TYPE_CHECKING:
    from runtime_py.artifact import Artifact, Generation
    from runtime_py.engine import Engine

MAX_SEQS = 64
_STEP_TOKENS = 512
_CACHE_BYTES = 256 << 20
_MIN_CACHE_TOKENS = 2048


def generation_of(artifact: Artifact) -> Generation:
    """The manifest's section.

    Raises:
        ArtifactUnsupported: the artifact has none.
    """
    generation = artifact.manifest.generation
    if generation is None:
        raise ArtifactUnsupported(
            f"the artifact's tasks are {list(artifact.manifest.tasks)}, expected 'generate' "
            "among them: its program is a decoder"
        )
    return generation


def decoder_limits(artifact: Artifact, threads: int, kv_blocks: int | None) -> ExecutorLimits:
    """What a step and the cache hold.

    Args:
        kv_blocks: blocks of the cache; None = about 256 MiB, at least 2,048 tokens or the
            model's context, at most what 64 sequences of it need.

    Raises:
        InvalidInput: no whole number of blocks.
    """
    generation = generation_of(artifact)
    if kv_blocks is None:
        tokens = _CACHE_BYTES // max(generation.kv_bytes_per_token, 1)
        least = min(_MIN_CACHE_TOKENS, generation.max_context)
        tokens = min(max(tokens, least), MAX_SEQS * generation.max_context)
        kv_blocks = -(-tokens // KV_BLOCK)
    elif isinstance(kv_blocks, bool) or not isinstance(kv_blocks, int) or kv_blocks < 1:
        raise InvalidInput(f"kv_blocks is {kv_blocks!r}, expected a whole number from 1")
    longest = max(len(case.token_ids) for case in artifact.goldens.cases)
    return ExecutorLimits(max(_STEP_TOKENS, longest), MAX_SEQS, threads, 1, kv_blocks, MAX_SEQS)


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


def generator_of(artifact: Artifact, engine: Engine, tokenizer: TextTokenizer) -> Generator:
    """`Model.generate` and `Model.chat` of a loaded decoder."""
    generation = generation_of(artifact)
    file = generation.chat_template

    def template() -> ChatTemplate:
        assert file is not None
        source = artifact.path(file).read_text(encoding="utf-8")
        return ChatTemplate(source, bos_token=generation.bos_token, eos_token=generation.eos_token)

    info = GenerationInfo(
        artifact.program.vocab_size,
        engine.max_context,
        generation.eos_token_ids,
        file is not None,
    )
    return Generator(engine, tokenizer, info, template if file is not None else None)
