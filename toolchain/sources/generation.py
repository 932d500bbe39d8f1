"""What a language model's files say about where answers end and how a chat is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from runtime_py.errors import ArtifactUnsupported
from toolchain.sources.source import ModelSource, read_json

_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_sequence_length")


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """How a model is talked to.

    Attributes:
        eos_token_ids: what ends an answer: the union of configuration, generation
            configuration, tokenizer and the end-of-turn tokens that we know, ascending.
        bos_token, eos_token: texts that a chat template may name.
        chat_template: Jinja, None for a model that is no chat model.
        max_context: most tokens of a sequence.
        max_tokens_source: the file or field that says so.
    """

    eos_token_ids: tuple[int, ...]
    bos_token: str | None
    eos_token: str | None
    chat_template: str | None
    max_context: int
    max_tokens_source: str


def read_generation(source: ModelSource) -> GenerationSpec:
    """Read it from the GGUF file or the model's directory.

    Raises:
        ArtifactUnsupported: the source is no language model, or states no context length.
        ArtifactCorrupt: a file cannot be read.
    """
    config = source.config()
    if source.task != "generate":
        raise ArtifactUnsupported(
            f"{source.model_id} ({source.architecture}) is no causal language model"
        )
    positions = next((int(config[k]) for k in _POSITIONS if config.get(k)), 0)
    if positions < 2:
        raise ArtifactUnsupported(
            f"{source.model_id}: its configuration states no context length, expected one of "
            f"{', '.join(_POSITIONS)}"
        )
    if source.gguf_path is not None:
        return _of_gguf(source, config, positions)
    return _of_directory(source, config, positions)


def _of_gguf(source: ModelSource, config: Mapping[str, Any], positions: int) -> GenerationSpec:
    from toolchain.sources.gguf import GgufFile, load_tokenizer

    assert source.gguf_path is not None
    found = load_tokenizer(GgufFile(source.gguf_path))

    def text(index: int | None) -> str | None:
        return None if index is None else found.tokens[index]

    return GenerationSpec(
        eos_token_ids=found.eos_ids,
        bos_token=text(found.bos_id),
        eos_token=text(config.get("eos_token_id")),
        chat_template=found.chat_template,
        max_context=positions,
        max_tokens_source="context_length of the GGUF file",
    )


def _of_directory(source: ModelSource, config: Mapping[str, Any], positions: int) -> GenerationSpec:
    from toolchain.sources.gguf.tokenizer import END_OF_TURN
    from toolchain.sources.tokenizers import auto_tokenizer

    auto = auto_tokenizer(source.path)
    file = source.path / "generation_config.json"
    others = read_json(file) if file.is_file() else {}
    named: list[Any] = []
    for value in (config.get("eos_token_id"), others.get("eos_token_id"), auto.eos_token_id):
        named += value if isinstance(value, list) else [value]
    special = auto.added_tokens_decoder.items()
    named += [i for i, token in special if token.special and token.content in END_OF_TURN]
    vocabulary = int(config.get("vocab_size") or len(auto))
    template = auto.chat_template
    if isinstance(template, Mapping):
        template = template.get("default")
    return GenerationSpec(
        eos_token_ids=tuple(sorted({i for i in named if isinstance(i, int) and i < vocabulary})),
        bos_token=auto.bos_token,
        eos_token=auto.eos_token,
        chat_template=template,
        max_context=positions,
        max_tokens_source="config.json",
    )
