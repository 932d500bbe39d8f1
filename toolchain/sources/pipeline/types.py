"""What happens to a text's token vectors, and how long a text may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime_py.program import Activation, PoolMode

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Pooling:
    """One vector per sequence; several modes are concatenated in this order."""

    modes: tuple[PoolMode, ...]


@dataclass(frozen=True, slots=True)
class Dense:
    """``activation(x @ weight.T + bias)``; ``weight`` is f32 [out, in], ``bias`` f32 [out]."""

    weight: Array
    bias: Array | None
    activation: Activation
    name: str


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Layer norm over the whole vector; ``weight`` and ``bias`` are f32 [dim]."""

    weight: Array
    bias: Array
    eps: float
    name: str


@dataclass(frozen=True, slots=True)
class Normalize:
    """Division by the Euclidean norm, at least ``eps``."""

    eps: float = 1e-12


HeadModule = Pooling | Dense | LayerNorm | Normalize

POOLING_NAMES: Mapping[PoolMode, str] = {
    PoolMode.MEAN: "mean",
    PoolMode.CLS: "cls",
    PoolMode.MAX: "max",
    PoolMode.LAST: "last",
    PoolMode.MEAN_SQRT_LEN: "mean_sqrt_len",
    PoolMode.WEIGHTED_MEAN: "weighted_mean",
}
"""How the manifest spells the modes."""


@dataclass(frozen=True, slots=True)
class EmbeddingPipeline:
    """The sentence-transformers pipeline of a model, read from its files.

    Attributes:
        hidden_size: width of a token's vector.
        modules: what follows the transformer, in order; the first is the pooling.
        include_prompt: False when pooling leaves a prompt's tokens out.
        prompts: name -> text put before an input.
        default_prompt_name: the prompt used when the caller names none.
        similarity: "cosine", "dot", "euclidean" or "manhattan".
        do_lower_case: texts are lower-cased before they are tokenized.
        max_tokens: longest input, special tokens included.
        max_tokens_source: the file that sets ``max_tokens``.
        max_positions: positions the model itself can tell apart; 0 = unlimited.
        vocab_size: rows of the word embedding, if the configuration says so.
        pad_token_id: id that the model treats as padding, if the configuration says so.
        notes: what a reader of the report should know.
    """

    hidden_size: int
    modules: tuple[HeadModule, ...]
    max_tokens: int
    max_tokens_source: str
    max_positions: int
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: str = "cosine"
    do_lower_case: bool = False
    vocab_size: int | None = None
    pad_token_id: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def dimensions(self) -> int:
        """Width of an embedding."""
        width = self.hidden_size
        for m in self.modules:
            if isinstance(m, Pooling):
                width *= len(m.modes)
            elif isinstance(m, Dense):
                width = m.weight.shape[0]
        return width

    @property
    def normalized(self) -> bool:
        """Whether embeddings have length one."""
        return isinstance(self.modules[-1], Normalize)

    @property
    def pooling(self) -> tuple[str, ...]:
        """Names of the pooling modes, concatenated in this order."""
        return tuple(
            POOLING_NAMES[mode] for m in self.modules if isinstance(m, Pooling) for mode in m.modes
        )

    def manifest(self) -> dict[str, Any]:
        """The manifest's ``embedding`` object (docs/design.md, 6.2)."""
        return {
            "dimensions": self.dimensions,
            "normalized": self.normalized,
            "pooling": list(self.pooling),
            "include_prompt": self.include_prompt,
            "prompts": dict(self.prompts),
            "default_prompt_name": self.default_prompt_name,
            "similarity": self.similarity,
        }
