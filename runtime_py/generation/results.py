"""What a generation gives: pieces while it runs, and the whole."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextPiece:
    """One token of one sample.

    Attributes:
        text: what it adds to the sample's text; empty while a character or a possible
            stop string is incomplete, and for the token that ends it.
        token_id: the token.
        index: which sample.
        logprob: of the token, if log-probabilities were asked for.
        top_logprobs: the most likely (id, logprob), best first.
        finish_reason: ``"stop"`` or ``"length"`` with a sample's last piece.
    """

    text: str
    token_id: int
    index: int = 0
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole sample.

    Attributes:
        text: without the stop string or stop token that ended it.
        token_ids: as sampled, the stop token included.
        logprobs: per token, or None.
        finish_reason: ``"stop"``: a stop token or stop string; ``"length"``.
        tpot_ms: mean time between its tokens; 0 for a single one.
    """

    text: str
    token_ids: list[int]
    finish_reason: str
    logprobs: list[float] | None = None
    tpot_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request; ``cached_tokens`` of the prompt were not computed again."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class GenerateResult:
    """A finished generation.

    Attributes:
        completions: one per sample.
        queue_ms: from the call to its first step.
        ttft_ms: from the call to its first token.
        seed: repeats the call's result.
    """

    completions: list[Completion]
    usage: Usage
    queue_ms: float
    ttft_ms: float
    seed: int

    @property
    def text(self) -> str:
        """Of the first sample."""
        return self.completions[0].text

    @property
    def finish_reason(self) -> str:
        """Of the first sample."""
        return self.completions[0].finish_reason
