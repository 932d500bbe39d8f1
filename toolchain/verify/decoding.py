"""Runs a decoder over a text and lets it continue prompts, without an engine."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from runtime_py.errors import NonFinite
from runtime_py.executors.base import ModelExecutor, SamplingRow, SeqRow, Step
from runtime_py.program import KV_BLOCK

Floats = npt.NDArray[np.float32]
Logits = Callable[[Sequence[int]], Floats]
"""Token ids of one text to its logits, f32 [tokens, vocabulary]."""


@dataclass(frozen=True, slots=True)
class Score:
    """A text's logits next to the expected ones (see `LanguageReport`)."""

    perplexity: float
    expected_perplexity: float
    top1: float
    max_diff: float


def score(executor: ModelExecutor, token_ids: Sequence[int], expected: Floats) -> Score:
    """Run ``token_ids`` in chunks and compare with ``expected`` [tokens, vocabulary].

    Raises:
        NonFinite: the backend reports NaN or infinity.
    """
    chunk = min(executor.limits.max_tokens, executor.limits.max_wanted)
    table = array("i", range(_blocks(len(token_ids))))
    found, wanted, same, worst = 0.0, 0.0, 0, 0.0
    for start in range(0, len(token_ids), chunk):
        ids = array("i", token_ids[start : start + chunk])
        step = Step(ids, [SeqRow(0, len(ids), start)], 1, [table], (), range(len(ids)), None)
        result = executor.run(step)
        if any(result.statuses):
            raise NonFinite(
                f"{executor.name} computes NaN or infinity in tokens {start} to "
                f"{start + len(ids) - 1} of the passage; the model's weights overflow in this "
                "quantization: try --quantize f32"
            )
        logits, truth = np.asarray(result.output), expected[start : start + len(ids)]
        same += int((logits.argmax(axis=1) == truth.argmax(axis=1)).sum())
        worst = max(worst, float(np.abs(logits - truth).max()))
        following = np.array(token_ids[start + 1 : start + 1 + len(ids)])
        found += _surprise(logits, following)
        wanted += _surprise(truth, following)
    predicted = max(len(token_ids) - 1, 1)
    return Score(
        perplexity=float(np.exp(found / predicted)),
        expected_perplexity=float(np.exp(wanted / predicted)),
        top1=same / len(token_ids),
        max_diff=worst,
    )


def continue_greedily(
    executor: ModelExecutor,
    prompts: Sequence[Sequence[int]],
    max_new: int,
    eos: Sequence[int],
    max_context: int,
) -> list[list[int]]:
    """The most likely continuation of each prompt, its end token included.

    All prompts decode in one batch.
    """
    answers: list[list[int]] = [[] for _ in prompts]
    tables: list[array[int]] = []
    first = 0
    for prompt in prompts:
        count = _blocks(min(len(prompt) + max_new, max_context))
        tables.append(array("i", range(first, first + count)))
        first += count
    running = [i for i, prompt in enumerate(prompts) if len(prompt) < max_context]
    for i in running:
        _prefill(executor, prompts[i][:-1], tables[i])
    while running:
        last = array("i", ((answers[i] or prompts[i])[-1] for i in running))
        seqs = [
            SeqRow(row, 1, len(prompts[i]) + len(answers[i]) - 1) for row, i in enumerate(running)
        ]
        sampling = [SamplingRow()] * len(running)
        here = [tables[i] for i in running]
        result = executor.run(Step(last, seqs, 1, here, (), range(len(running)), sampling))
        for i, sampled in zip(tuple(running), result.sampled, strict=True):
            answers[i].append(sampled.token_id)
            full = len(prompts[i]) + len(answers[i]) >= max_context
            if sampled.token_id in eos or len(answers[i]) == max_new or full:
                running.remove(i)
    return answers


def _prefill(executor: ModelExecutor, token_ids: Sequence[int], table: array[int]) -> None:
    chunk = executor.limits.max_tokens
    for start in range(0, len(token_ids), chunk):
        ids = array("i", token_ids[start : start + chunk])
        executor.run(Step(ids, [SeqRow(0, len(ids), start)], 1, [table], (), (), None))


def _surprise(logits: Floats, following: npt.NDArray[np.int64]) -> float:
    """Sum of minus the log-probability of each following token; the last row may lack one."""
    rows = logits[: len(following)].astype(np.float64)
    if not len(rows):
        return 0.0
    top = rows.max(axis=1)
    total = np.log(np.exp(rows - top[:, None]).sum(axis=1)) + top
    return float((total - rows[np.arange(len(rows)), following]).sum())


def _blocks(tokens: int) -> int:
    return -(-tokens // KV_BLOCK)
