"""SmolLM2 itself: one prompt's greedy text, whatever happens around it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import runtime_py as rt
from tests.engine.tiny import run

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
ANSWER = "The capital of France is Paris."


def test_G7_the_answer_is_the_same_alone_in_company_in_chunks_and_warm(
    smollm2_artifacts: Mapping[str, Path],
) -> None:
    async def test() -> None:
        async with await rt.load(
            smollm2_artifacts["i4"],
            threads=2,
            config=rt.SchedulerConfig(max_batch_tokens=16),
            kv_bytes=32 << 20,
        ) as model:
            alone = await model.chat(QUESTION, max_tokens=12)
            assert (alone.text, alone.finish_reason) == (ANSWER, "stop")
            assert alone.usage.cached_tokens == 0
            others = [
                model.generate(f"Bird number {i} is", max_tokens=2 + i).result() for i in range(3)
            ]
            among, *_ = await asyncio.gather(model.chat(QUESTION, max_tokens=12).result(), *others)
            assert among.completions[0].token_ids == alone.completions[0].token_ids
            assert among.usage.cached_tokens == 32  # and it is a warm one
            assert max(model.stats().batch_sizes) > 1

    run(test)
