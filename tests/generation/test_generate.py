"""Generations of a real (tiny) decoder: texts that depend on nothing but the request."""

from __future__ import annotations

import asyncio
import gc
from array import array
from collections.abc import Sequence

import pytest

from runtime_py import (
    Aborted,
    DeadlineExceeded,
    DeviceLost,
    NeverFits,
    NonFinite,
    SchedulerConfig,
    TraceRecorder,
)
from runtime_py.batching import replay
from runtime_py.executors.base import SeqRow, SeqStatus, Step
from tests.engine.tiny import Gate, run, settle
from tests.generation.tiny import CHARS, SPECIAL, greedy, make, reference

# Its answer has many different tokens.
_IDS = "38 34 37 17 82 26 47 40 11 24 23 35 70 24 87 37 85 94 40 61 92 44 66"
PROMPT = tuple(int(i) for i in _IDS.split())


def text_of(ids: Sequence[int]) -> str:
    return "".join((SPECIAL + CHARS)[i] for i in ids if i >= len(SPECIAL))


# --- texts


def test_greedy_is_the_argmax_of_whole_sequences() -> None:
    async def test() -> None:
        async with make() as model:
            result = await model.generate(PROMPT, max_tokens=20)
            (only,) = result.completions
            assert tuple(only.token_ids) == greedy(PROMPT, 20)
            assert result.text == text_of(only.token_ids)
            assert result.finish_reason == "length"
            assert only.logprobs is None
            assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (23, 20)
            assert 0 <= result.queue_ms <= result.ttft_ms
            assert only.tpot_ms > 0

    run(test)


@pytest.mark.parametrize("others", [1, 7, 31])
def test_G7_company_changes_no_token(others: int) -> None:
    async def test() -> None:
        async with make() as model:
            mine = asyncio.ensure_future(model.generate(PROMPT, max_tokens=24).result())
            rest = []
            for i in range(others):
                prompt = [3 + i % 90] * (1 + 3 * i % 40)
                stream = model.generate(prompt, max_tokens=2 + i % 9, temperature=i % 2, seed=i)
                rest.append(asyncio.ensure_future(stream.result()))
                if i % 4 == 0:
                    await asyncio.sleep(0.001)
            result = await mine
            await asyncio.gather(*rest)
            assert tuple(result.completions[0].token_ids) == greedy(PROMPT, 24)
            assert max(model.stats().batch_sizes) > 1

    run(test)


@pytest.mark.parametrize("chunk", [1, 5, 16])
def test_chunks_and_a_warm_prefix_change_no_token(chunk: int) -> None:
    prompt = tuple(3 + i * 7 % 90 for i in range(70))

    async def test() -> None:
        async with make(config=SchedulerConfig(max_batch_tokens=chunk)) as model:
            for cached in (0, 64):
                result = await model.generate(prompt, max_tokens=8)
                assert tuple(result.completions[0].token_ids) == greedy(prompt, 8)
                assert result.usage.cached_tokens == cached

    run(test)


def test_preemption_changes_no_token() -> None:
    async def test() -> None:
        async with make(reference(kv_blocks=7)) as model:
            prompts = [tuple([5 + i] * 40) for i in range(4)]
            results = await asyncio.gather(
                *[model.generate(p, max_tokens=40).result() for p in prompts]
            )
            for prompt, result in zip(prompts, results, strict=True):
                assert tuple(result.completions[0].token_ids) == greedy(prompt, 40)
            stats = model.stats()
            assert stats.kv is not None
            assert stats.kv.preemptions > 0
            assert stats.recomputed_tokens > 0
            assert stats.kv.free_blocks == stats.kv.num_blocks == 7

    run(test)


def test_samples_differ_and_a_seed_repeats_them() -> None:
    async def test() -> None:
        async with make() as model:
            options = {"max_tokens": 12, "temperature": 1.0, "n": 3}
            first = await model.generate(PROMPT, seed=7, **options)
            texts = [c.token_ids for c in first.completions]
            assert len({tuple(t) for t in texts}) == 3
            again = await model.generate(PROMPT, seed=7, **options)
            assert [c.token_ids for c in again.completions] == texts
            drawn = await model.generate(PROMPT, **options)
            repeated = await model.generate(PROMPT, seed=drawn.seed, **options)
            assert drawn.completions[2].token_ids == repeated.completions[2].token_ids
            second = await model.generate(PROMPT, seed=8, max_tokens=12, temperature=1.0)
            assert second.completions[0].token_ids == texts[1]  # sample i uses seed + i
            top = await model.generate(PROMPT, seed=1, max_tokens=12, temperature=1.0, top_k=1)
            assert tuple(top.completions[0].token_ids) == greedy(PROMPT, 12)

    run(test)


# --- streams and ends


def test_a_stream_is_the_whole_in_pieces() -> None:
    async def test() -> None:
        async with make() as model:
            stream = model.generate(PROMPT, max_tokens=9, logprobs=2)
            pieces = [piece async for piece in stream]
            assert tuple(p.token_id for p in pieces) == greedy(PROMPT, 9)
            assert [p.finish_reason for p in pieces] == [None] * 8 + ["length"]
            for piece in pieces:
                assert piece.logprob is not None
                assert piece.logprob <= 0
                assert piece.top_logprobs[0] == (piece.token_id, piece.logprob)
                assert len(piece.top_logprobs) == 2
            result = await stream
            assert result.text == "".join(p.text for p in pieces)
            assert result.completions[0].logprobs == [p.logprob for p in pieces]
            assert [p async for p in stream] == []

    run(test)


def test_G3_eos_ends_the_text_and_is_not_in_it() -> None:
    eos = greedy(PROMPT, 20)[6]

    async def test() -> None:
        async with make(eos=(99, eos)) as model:
            result = await model.generate(PROMPT, max_tokens=20)
            at = greedy(PROMPT, 20).index(eos)
            assert result.finish_reason == "stop"
            assert tuple(result.completions[0].token_ids) == greedy(PROMPT, at + 1)
            assert result.text == text_of(greedy(PROMPT, at))
            more = await model.generate(PROMPT, max_tokens=20, ignore_eos=True)
            assert tuple(more.completions[0].token_ids) == greedy(PROMPT, 20)
            own = await model.generate(PROMPT, max_tokens=20, stop_token_ids=[greedy(PROMPT, 3)[2]])
            assert len(own.completions[0].token_ids) <= 3

    run(test)


def test_a_stop_string_across_tokens_leaves_no_trace_and_no_further_step() -> None:
    whole = greedy(PROMPT, 24)
    text = text_of(whole)
    stop = text[6:9]
    at = text.index(stop)

    async def test() -> None:
        gate = Gate(reference(), open=True)
        async with make(gate) as model:
            pieces = [p async for p in model.generate(PROMPT, max_tokens=24, stop=["~~~", stop])]
            assert "".join(p.text for p in pieces) == text[:at]
            assert pieces[-1].finish_reason == "stop"
            rows = sum(r.context_len >= len(PROMPT) for s in gate.steps for r in s.seqs)
            assert rows == len(pieces) - 1

    run(test)


def test_length_is_what_the_context_leaves() -> None:
    async def test() -> None:
        async with make() as model:
            result = await model.generate([5] * 390)
            assert result.usage.completion_tokens == 10
            assert result.finish_reason == "length"

    run(test)


# --- leaving


def test_G9_every_way_to_leave_ends_the_generation() -> None:
    async def test() -> None:
        async with make() as model:

            async def leave() -> None:
                async for _ in model.generate(PROMPT, max_tokens=300):
                    break

            await leave()
            gc.collect()
            stream = model.generate(PROMPT, max_tokens=300)
            await anext(stream)
            await stream.aclose()
            await stream.aclose()
            assert [p async for p in stream] == []
            with pytest.raises(Aborted):
                await stream
            async with model.generate(PROMPT, max_tokens=300) as stream:
                await anext(stream)
            task = asyncio.ensure_future(model.generate(PROMPT, max_tokens=300).result())
            await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            never = model.generate(PROMPT)
            await never.aclose()
            assert [p async for p in never] == []
            result = await model.generate(PROMPT, max_tokens=4)  # and the next one works
            assert tuple(result.completions[0].token_ids) == greedy(PROMPT, 4)
            assert model.stats().requests == 0
            assert model.stats().finished == {"aborted": 4, "done": 1}
            model._engine._core.lanes[0].residents.kv.check_idle()  # type: ignore[attr-defined]

    run(test)


def test_closing_the_model_ends_streams() -> None:
    async def test() -> None:
        model = make()
        stream = model.generate(PROMPT, max_tokens=300)
        await anext(stream)
        await model.close()
        with pytest.raises(Aborted):
            async for _ in stream:
                pass
        with pytest.raises(Aborted):
            model.generate(PROMPT)

    run(test)


def test_a_slow_reader_holds_nobody_up() -> None:
    async def test() -> None:
        async with make() as model:
            slow = model.generate(PROMPT, max_tokens=30)
            await anext(slow)
            for _ in range(3):
                await model.generate([5], max_tokens=20)
            assert len(slow._request.samples[0].fresh) == 29  # type: ignore[union-attr]
            assert tuple((await slow).completions[0].token_ids) == greedy(PROMPT, 30)

    run(test)


# --- faults


def test_what_the_cache_can_never_hold_is_refused() -> None:
    async def test() -> None:
        async with make(reference(kv_blocks=2, max_seqs=4)) as model:
            with pytest.raises(NeverFits, match="hold 63"):
                await model.generate([5] * 64)
            with pytest.raises(NeverFits, match="n is 5, expected at most 4"):
                await model.generate([5], n=5)
            assert (await model.generate([5] * 60)).usage.completion_tokens == 4

    run(test)


def test_non_finite_logits_and_lost_devices_are_typed_errors() -> None:
    async def test() -> None:
        state: list[object] = []
        gate = Gate(reference(), lambda step: state[0] if state else None, open=True)  # type: ignore[arg-type,return-value]
        async with make(gate) as model:
            stream = model.generate(PROMPT, max_tokens=50)
            await anext(stream)
            state.append(SeqStatus.NON_FINITE)
            with pytest.raises(NonFinite, match="NaN"):
                await stream
            state.clear()
            assert (await model.generate(PROMPT, max_tokens=2)).finish_reason == "length"
            state.append(DeviceLost("gone"))
            with pytest.raises(DeviceLost, match="gone"):
                await model.generate(PROMPT)

    run(test)


def test_a_deadline_ends_a_stream_after_its_pieces() -> None:
    async def test() -> None:
        async with make() as model:
            pieces: list[int] = []

            async def read() -> None:
                async for piece in model.generate(PROMPT, deadline_ms=150):
                    pieces.append(piece.token_id)

            with pytest.raises(DeadlineExceeded):
                await read()
            assert tuple(pieces) == greedy(PROMPT, len(pieces))

    run(test)


def test_a_trace_of_generations_replays() -> None:
    lines: list[str] = []
    recorder = TraceRecorder(lines.append)

    async def test() -> None:
        async with make(recorder=recorder) as model:
            stop = text_of(greedy(PROMPT, 8))[3:6]
            await asyncio.gather(
                model.generate(PROMPT, max_tokens=9, n=2).result(),
                model.generate(PROMPT, max_tokens=20, stop=stop).result(),
                model.generate([4], max_tokens=3).result(),
            )

    run(test)
    assert replay(lines) == recorder.digest


def test_steps_follow_the_contract() -> None:
    """Rows tile the tokens, tables reach every position, wanted rows ascend."""

    async def test() -> None:
        gate = Gate(reference(), open=True)
        async with make(gate) as model:
            await asyncio.gather(
                *[model.generate([5] * (10 + 40 * i), max_tokens=6, n=2).result() for i in range(3)]
            )
        for step in gate.steps:
            check(step)

    def check(step: Step) -> None:
        at = 0
        for row, table in zip(step.seqs, step.block_tables, strict=True):
            assert isinstance(row, SeqRow)
            assert isinstance(table, array)
            assert row.first_token == at
            assert len(table) * 32 >= row.context_len + row.num_tokens
            at += row.num_tokens
        assert at == len(step.token_ids)
        assert list(step.wanted) == sorted(set(step.wanted))
        assert step.sampling is not None
        assert len(step.sampling) == len(step.wanted)

    run(test)
    asyncio.run(settle())
