"""A whole decoder: what it computes and generates depends on nothing but the request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from runtime_py.executors.base import ExecutorLimits, ModelExecutor, SamplingRow
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.program import TensorFormat
from tests.ops.cases.cached import chunks, mixed, sequences, whole
from tests.ops.cases.decoder import VOCAB, decoder
from tests.ops.cases.encoder import weights_of
from tests.ops.cases.paged import Paged
from tests.ops.cases.steps import output_of
from tests.ops.generation import Request, generate

F = TensorFormat
LIMITS = ExecutorLimits(1024, 32, threads=1, concurrent_steps=1, kv_blocks=160, max_wanted=1024)
KINDS = [(F.F32, 0), (F.S8B32, 16), (F.I8B32, 8), (F.I4B32, 16)]


def reference(fmt: F, bits: int, window: int = 40) -> ModelExecutor:
    program, parts = decoder(fmt, bits, window=window)
    return ReferenceExecutor.from_weights(program, weights_of(program, parts), limits=LIMITS)


def logits(
    executor: ModelExecutor, plan: Callable[[Paged], None], texts: list[list[int]]
) -> dict[tuple[int, int], np.ndarray]:
    """The logits of every wanted (sequence, position)."""
    paged = Paged(texts, LIMITS.kv_blocks)
    plan(paged)
    program = executor._program  # type: ignore[attr-defined]
    found = {}
    for step, rows in zip(paged.steps, paged.rows, strict=True):
        output = output_of(program, step, executor.run(step))
        found.update(zip(rows, output, strict=True))
    return found


@pytest.mark.parametrize(("fmt", "bits"), KINDS, ids=str)
def test_chunks_do_not_change_the_logits(fmt: F, bits: int) -> None:
    executor = reference(fmt, bits)
    texts = sequences(VOCAB)
    wanted = logits(executor, whole, texts)
    assert len(wanted) == sum(map(len, texts))
    for plan in (chunks(1), chunks(7), chunks(32), mixed):
        got = logits(executor, plan, texts)
        assert len(got) > 40
        for row, values in got.items():
            # rounding in another order may move one activation code of a quantized model
            np.testing.assert_allclose(values, wanted[row], atol=2e-6 if fmt is F.F32 else 0.02)


def requests() -> list[Request]:
    """32 of every kind: lengths, greedy and drawn, penalties, joining at any time."""
    rng = np.random.default_rng(5)
    rows = [
        SamplingRow(),
        SamplingRow(0.8, seed=3),
        SamplingRow(1.2, top_k=12, top_p=0.9, seed=2**60),
        SamplingRow(repetition_penalty=1.5, frequency_penalty=0.2),
        SamplingRow(0.7, min_p=0.05, presence_penalty=0.6, seed=11),
    ]
    return [
        Request(
            rng.integers(0, VOCAB, int(rng.choice([1, 5, 31, 32, 33, 70]))).tolist(),
            max_tokens=int(rng.integers(1, 14)),
            row=rows[i % len(rows)],
            joins=int(rng.integers(0, 12)),
        )
        for i in range(32)
    ]


@pytest.fixture(scope="module")
def alone() -> list[list[int]]:
    """What each request generates by itself, its prompt in one chunk."""
    executor = reference(F.I8B32, 16)
    return [generate(executor, [replace(r, joins=0)], chunk=100)[0] for r in requests()]


@pytest.mark.parametrize("chunk", [1, 16, 100])
def test_G5_a_batch_of_32_joining_and_leaving_generates_what_each_does_alone(
    alone: list[list[int]], chunk: int
) -> None:
    assert generate(reference(F.I8B32, 16), requests(), chunk=chunk) == alone


def test_a_preempted_request_generates_the_same(alone: list[list[int]]) -> None:
    preempt = {(4, 0), (9, 0), (9, 7), (12, 20), (13, 20)}
    assert generate(reference(F.I8B32, 16), requests(), chunk=16, preempt=preempt) == alone


def test_samples_of_one_prompt_share_its_blocks_and_differ_by_seed() -> None:
    executor = reference(F.I8B32, 16)
    for length in (33, 40, 64, 2):
        prompt = sequences(VOCAB, [length])[0]
        row = SamplingRow(1.0)
        several = [Request(prompt, 12, row)] + [
            Request(prompt, 12, row._replace(seed=i), joins=2 + i, fork_of=0) for i in (1, 2, 3)
        ]
        one_by_one = [
            generate(executor, [Request(prompt, 12, row._replace(seed=i))])[0] for i in range(4)
        ]
        assert generate(executor, several) == one_by_one
        assert len({tuple(tokens) for tokens in one_by_one}) == 4


def test_the_generated_tokens_are_varied(alone: list[list[int]]) -> None:
    """The tests above would pass on a model that always says the same."""
    assert len({token for tokens in alone for token in tokens}) > 20
