"""How far a quantized language model is from its f32 graph, and whether that is too far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.errors import AccuracyGate
from runtime_py.executors.base import ModelExecutor
from toolchain.quantize.decoder import TensorLoss
from toolchain.quantize.schemes import DecoderScheme
from toolchain.verify.decoding import Logits, continue_greedily, score

CORPUS = "a passage of technical English"
MAX_NEW_TOKENS = 40

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class GreedyText:
    """A greedy answer.

    Attributes:
        prompt: what was asked.
        text: the quantized model's answer.
        tokens: its length, at most `MAX_NEW_TOKENS`; shorter when it ended.
        equal: how many of them, from the first on, the f32 graph would have chosen too.
    """

    prompt: str
    text: str
    tokens: int
    equal: int


@dataclass(frozen=True, slots=True)
class WeightLoss:
    """What storing the matrices changed.

    Attributes:
        tensors: how many were quantized or rounded.
        exact: how many of them give back the f32 weights to the bit.
        worst_relative_error: of one matrix, RMS difference over RMS value.
        max_error: largest difference of one weight.
        worst_tensor: the matrix with the worst relative error.
    """

    tensors: int
    exact: int
    worst_relative_error: float
    max_error: float
    worst_tensor: str

    @classmethod
    def of(cls, losses: Sequence[TensorLoss]) -> WeightLoss:
        """The sum over all matrices."""
        if not losses:
            return cls(0, 0, 0.0, 0.0, "")
        worst = max(losses, key=lambda loss: loss.relative_error)
        return cls(
            tensors=len(losses),
            exact=sum(loss.max_error == 0 for loss in losses),
            worst_relative_error=worst.relative_error,
            max_error=max(loss.max_error for loss in losses),
            worst_tensor=worst.name,
        )


@dataclass(frozen=True, slots=True)
class LanguageReport:
    """A language model next to its f32 graph.

    Attributes:
        backend: what ran the quantized program.
        tokens: of the passage.
        perplexity, perplexity_f32: of the passage, its first token given.
        top1: share of the passage's tokens whose most likely successor is the same.
        max_logit_diff: largest difference of two logits.
        greedy: answers to a few prompts.
        weights: what storing the weights changed.
        min_top1, max_perplexity_rise: the gate (see `DecoderScheme`).
    """

    backend: str
    tokens: int
    perplexity: float
    perplexity_f32: float
    top1: float
    max_logit_diff: float
    greedy: tuple[GreedyText, ...]
    weights: WeightLoss
    min_top1: float
    max_perplexity_rise: float

    @property
    def perplexity_rise(self) -> float:
        """As a share: 0.01 is one percent."""
        return self.perplexity / self.perplexity_f32 - 1

    @property
    def passed(self) -> bool:
        return self.top1 >= self.min_top1 and self.perplexity_rise <= self.max_perplexity_rise

    def manifest(self) -> dict[str, Any]:
        """The manifest's ``numerics`` object."""
        return {
            "corpus": CORPUS,
            "backend": self.backend,
            "tokens": self.tokens,
            "perplexity": self.perplexity,
            "perplexity_f32": self.perplexity_f32,
            "top1": self.top1,
            "max_logit_diff": self.max_logit_diff,
            "greedy_equal": [g.equal for g in self.greedy],
            "greedy_tokens": [g.tokens for g in self.greedy],
            "exact_tensors": self.weights.exact,
            "rounded_tensors": self.weights.tensors - self.weights.exact,
            "worst_weight_error": self.weights.worst_relative_error,
            "min_top1": self.min_top1,
            "max_perplexity_rise": self.max_perplexity_rise,
        }

    def enforce(self, scheme: str) -> None:
        """Refuse a result below the gate.

        Raises:
            AccuracyGate: with the numbers.
        """
        if not self.passed:
            raise AccuracyGate(
                f"{scheme} predicts the f32 graph's token for {self.top1:.1%} of "
                f"{self.tokens} tokens and raises the perplexity by {self.perplexity_rise:.2%}, "
                f"expected at least {self.min_top1:.1%} and at most "
                f"{self.max_perplexity_rise:.2%}; nothing was written: use a finer --quantize, "
                "or accept it with --allow-accuracy-loss"
            )


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of the comparison: what was asked, and the ids it becomes."""

    question: str
    token_ids: Sequence[int]


def compare_language(
    executor: ModelExecutor,
    graph: Logits,
    expected: Floats,
    sample: Sequence[int],
    prompts: Sequence[Prompt],
    scheme: DecoderScheme,
    losses: Sequence[TensorLoss],
    *,
    eos: Sequence[int],
    max_context: int,
    decode: Callable[[Sequence[int]], str],
) -> LanguageReport:
    """Compare the program that ``executor`` holds with the f32 graph.

    Args:
        graph: the f32 graph: token ids to logits f32 [tokens, vocabulary].
        expected: its logits for ``sample``.
        sample: ids of the passage.
        decode: token ids to text.

    The graph has no cache, so its own greedy answer would cost a pass per token. One pass
    over an answer of ours shows as well where it first had chosen otherwise.

    Raises:
        NonFinite: the program overflows on the passage.
    """
    found = score(executor, sample, expected)
    answers = continue_greedily(
        executor, [p.token_ids for p in prompts], MAX_NEW_TOKENS, eos, max_context
    )
    greedy: list[GreedyText] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        equal = 0
        if answer:
            logits = graph([*prompt.token_ids, *answer[:-1]])[len(prompt.token_ids) - 1 :]
            same = logits.argmax(axis=1) == np.array(answer)
            equal = len(answer) if same.all() else int(same.argmin())
        greedy.append(GreedyText(prompt.question, decode(answer), len(answer), equal))
    return LanguageReport(
        backend=executor.name,
        tokens=len(sample),
        perplexity=found.perplexity,
        perplexity_f32=found.expected_perplexity,
        top1=found.top1,
        max_logit_diff=found.max_diff,
        greedy=tuple(greedy),
        weights=WeightLoss.of(losses),
        min_top1=scheme.min_top1,
        max_perplexity_rise=scheme.max_perplexity_rise,
    )
