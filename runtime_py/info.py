"""The facts about a loaded model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What was loaded, and on what it runs.

    Attributes:
        id: name of the model.
        dimensions: columns of a vector; 0 for a model that generates.
        normalized: vectors have length 1.
        max_tokens: longest text in tokens, special tokens included; more is truncated.
        include_prompt: pooling counts the prompt's tokens.
        prompts: prompt name -> text.
        default_prompt_name: the prompt used when a call names none.
        quantization: name of the weights' scheme.
        executor: name of the backend.
        variant: its build, where it has several.
        threads: its threads.
        max_step_tokens, max_step_seqs: what one step holds.
        max_context: of a model that generates, the most tokens of a sequence, prompt and
            answer; 0 for an embedding model.
        vocab_size: its ids.
        chat: it has a chat template.
        kv_blocks: blocks of its key-value cache; 0 for an embedding model.
    """

    id: str
    dimensions: int
    normalized: bool
    max_tokens: int
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    quantization: str = "f32"
    executor: str = ""
    variant: str | None = None
    threads: int = 1
    max_step_tokens: int = 0
    max_step_seqs: int = 0
    max_context: int = 0
    vocab_size: int = 0
    chat: bool = False
    kv_blocks: int = 0
