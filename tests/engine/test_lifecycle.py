"""Cancelling, closing, faults and backpressure: what happens when things go wrong."""

from __future__ import annotations

import asyncio
import random
import threading
import time

import numpy as np
import pytest

from runtime_py import (
    Aborted,
    DeadlineExceeded,
    DeviceLost,
    NeverFits,
    NonFinite,
    OutOfMemory,
    Overloaded,
    QueuePolicy,
    SchedulerConfig,
    TraceRecorder,
    VoleryError,
)
from runtime_py.executors.base import SeqStatus, Step
from tests.engine.tiny import Gate, ids_of, make, reference, run, settle, too_large, truth


def near(vector: np.ndarray, text: str) -> None:
    np.testing.assert_allclose(vector, truth(ids_of(text)), atol=1e-6)


def holds(text: str):  # type: ignore[no-untyped-def]
    """Whether a step carries ``text``."""
    ids = ids_of(text)

    def check(step: Step) -> bool:
        return any(
            step.token_ids[r.first_token : r.first_token + r.num_tokens].tolist() == ids
            for r in step.seqs
        )

    return check


# --- batching


def test_C8_calls_of_one_loop_turn_share_a_step() -> None:
    async def test() -> None:
        config = SchedulerConfig(step_target_ms=10_000)
        async with make(reference(max_tokens=4096, max_seqs=64), config=config) as model:
            await asyncio.gather(*[model.embed(f"text {i}") for i in range(40)])
            stats = model.stats()
            assert stats.batch_sizes == {40: 1}
            assert stats.mean_batch_seqs == 40
            assert stats.finished == {"done": 40}

    run(test)


def test_C8_next_step_is_everything_that_arrived_meanwhile() -> None:
    async def test() -> None:
        gate = Gate()
        async with make(gate) as model:
            first = asyncio.create_task(model.embed("first"))
            await settle()
            rest = [asyncio.create_task(model.embed_with_info(f"r {i}")) for i in range(4)]
            await settle()
            gate.release()
            await settle()
            assert [len(s.seqs) for s in gate.steps] == [1, 4]
            gate.release()
            near(await first, "first")
            for i, result in enumerate(await asyncio.gather(*rest)):
                near(result.vectors, f"r {i}")
                assert (result.batch_seqs, result.steps) == (4, 1)
                assert result.batch_tokens == 16
                assert result.queue_ms > 0
                assert result.device_ms > 0
                assert result.cached_tokens == 0

    run(test)


# --- C6: cancelling


def test_C6_cancel_while_queued_uses_no_device_time() -> None:
    async def test() -> None:
        gate = Gate()
        async with make(gate) as model:
            first = asyncio.create_task(model.embed("first"))
            await settle()
            tasks = [asyncio.create_task(model.embed(f"t {i}")) for i in range(6)]
            await settle()
            for task in tasks[::2]:
                task.cancel()
            await settle()
            gate.release()
            await settle()
            assert [len(s.seqs) for s in gate.steps] == [1, 3]
            gate.release()
            near(await first, "first")
            for i in (1, 3, 5):
                near(await tasks[i], f"t {i}")
            assert all(t.cancelled() for t in tasks[::2])

    run(test)


def test_C6_cancel_before_the_first_turn_and_in_flight() -> None:
    async def test() -> None:
        gate = Gate()
        async with make(gate) as model:
            task = asyncio.create_task(model.embed("x"))
            await asyncio.sleep(0)  # it has submitted, nothing was flushed yet
            task.cancel()
            await settle()
            assert not gate.steps
            running = [asyncio.create_task(model.embed(f"y {i}")) for i in range(3)]
            await settle()
            running[1].cancel()
            await settle()
            gate.release()
            near(await running[0], "y 0")
            near(await running[2], "y 2")
            near(await _with(gate, model.embed("z")), "z")

    run(test)


async def _with(gate: Gate, call):  # type: ignore[no-untyped-def]
    """The result of a call whose steps are let through."""
    task = asyncio.ensure_future(call)
    while not task.done():
        await settle()
        if gate.held:
            gate.release()
        else:
            await asyncio.sleep(0.001)
    return await task


def test_C6_storm_of_2000_cancellations_loses_nothing() -> None:
    async def test() -> None:
        rng = random.Random(3)
        async with make() as model:

            async def one(i: int) -> str:
                text = f"s {i % 37}"
                try:
                    vector = await asyncio.wait_for(
                        model.embed(text), rng.choice([0, 0.0005, 0.003, 0.02, None])
                    )
                except TimeoutError:
                    return "cancelled"
                near(vector, text)
                return "done"

            outcomes = []
            for _ in range(20):
                outcomes += await asyncio.gather(*[one(i) for i in range(100)])
                await asyncio.sleep(rng.choice([0, 0.001]))
            assert outcomes.count("done") > 100
            assert outcomes.count("cancelled") > 100
            good = await model.embed([f"g {i}" for i in range(50)])
            for i, vector in enumerate(good):
                near(vector, f"g {i}")
            stats = model.stats()
            assert (stats.requests, stats.queued_seqs, stats.queued_tokens) == (0, 0, 0)

    run(test)


def test_C6_cancelled_list_takes_all_its_pieces_with_it() -> None:
    async def test() -> None:
        gate = Gate()
        async with make(gate) as model:
            task = asyncio.create_task(model.embed(["abc"] * 5000, traffic="throughput"))
            while not gate.held:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            gate.release()
            await settle()
            assert len(gate.steps) == 1
            assert model.stats().requests == 0

    run(test)


# --- closing


def test_close_is_idempotent_and_later_calls_are_refused() -> None:
    async def test() -> None:
        gate = Gate(open=True)
        model = make(gate)
        near(await model.embed("a"), "a")
        await asyncio.gather(model.close(), model.close())
        await model.close()
        assert gate.closed == 1
        for call in (model.embed("x"), model.embed([]), anext(model.embed_stream(["x"]))):
            with pytest.raises(Aborted, match="closed"):
                await call

    run(test)


def test_close_while_busy_aborts_what_waits_and_waits_for_the_device() -> None:
    async def test() -> None:
        gate = Gate()
        model = make(gate)
        tasks = [asyncio.create_task(model.embed(f"t {i}")) for i in range(3)]
        await settle()
        tasks.append(asyncio.create_task(model.embed(["u"] * 400)))
        await settle()
        closing = asyncio.create_task(model.close())
        await settle()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(r) for r in results} == {Aborted}
        assert not closing.done()  # a step is still on the device
        gate.release()
        await closing
        assert gate.closed == 1

    run(test)


def test_close_with_drain_finishes_what_was_submitted() -> None:
    async def test() -> None:
        model = make()
        tasks = [asyncio.create_task(model.embed(f"t {i}")) for i in range(50)]
        await asyncio.sleep(0)
        await model.close(drain=True)
        for i, task in enumerate(tasks):
            near(await task, f"t {i}")

    run(test)


def test_cancelled_close_still_closes() -> None:
    async def test() -> None:
        gate = Gate()
        model = make(gate)
        task = asyncio.create_task(model.embed("x"))
        await settle()
        closing = asyncio.create_task(model.close())
        await settle()
        closing.cancel()
        with pytest.raises(Aborted):
            await task
        gate.release()
        await model.close()
        assert gate.closed == 1

    run(test)


def test_M1_no_thread_outlives_its_model() -> None:
    async def test() -> None:
        async with make() as model:
            await model.embed(["some text"] * 500)

    before = set(threading.enumerate())
    for _ in range(5):
        run(test)
    # Worker threads end by themselves once their pool is shut down.
    deadline = time.monotonic() + 60
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        for thread in set(threading.enumerate()) - before:
            thread.join(1)
    assert set(threading.enumerate()) <= before


# --- faults


def test_C5_failing_step_rejects_only_the_culprit() -> None:
    bad = holds("bad")

    async def test() -> None:
        gate = Gate(fault=lambda s: ValueError("broken kernel") if bad(s) else None, open=True)
        async with make(gate) as model:
            texts = ["a", "b", "c", "bad", "d", "e", "f", "g"]
            results = await asyncio.gather(*[model.embed(t) for t in texts], return_exceptions=True)
            for text, result in zip(texts, results, strict=True):
                if text == "bad":
                    assert isinstance(result, ValueError)
                else:
                    near(result, text)
            await asyncio.gather(*[model.embed(t) for t in "hijklmno"])

    run(test)


def test_C5_non_finite_fails_its_text_with_the_index() -> None:
    bad = holds("bad")

    def fault(step: Step) -> SeqStatus | None:
        first = step.seqs[0].num_tokens == len(ids_of("bad")) and bad(step)
        return SeqStatus.NON_FINITE if first else None

    async def test() -> None:
        gate = Gate(fault=fault, open=True)
        async with make(gate) as model:
            with pytest.raises(NonFinite, match=r"texts\[0\]"):
                await model.embed(["bad", "good"])
            near(await model.embed("good"), "good")

    run(test)


def test_out_of_memory_shrinks_steps_instead_of_failing() -> None:
    async def test() -> None:
        gate = Gate(fault=too_large(40), open=True)
        async with make(gate) as model:
            texts = [f"text {i}" for i in range(100)]
            vectors = await model.embed(texts)
            for vector, text in zip(vectors, texts, strict=True):
                near(vector, text)
        gate = Gate(fault=too_large(10), open=True)
        async with make(gate) as model:
            with pytest.raises(OutOfMemory, match=r"texts\[1\]") as caught:
                await model.embed(["a", "a very long one indeed", "b"])
            assert caught.value.bytes_requested > 10

    run(test)


def test_M17_lost_device_is_typed_for_everyone_and_for_ever() -> None:
    async def test() -> None:
        gate = Gate(fault=lambda step: DeviceLost("trap"))
        async with make(gate) as model:
            tasks = [asyncio.create_task(model.embed(f"t {i}")) for i in range(40)]
            await settle()
            gate.release()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(r) for r in results} == {DeviceLost}
            with pytest.raises(DeviceLost, match="trap"):
                await model.embed("later")
            assert len(gate.steps) == 1

    run(test)


def test_submit_that_raises_is_a_failed_step() -> None:
    async def test() -> None:
        class Refusing(Gate):
            def submit(self, step, done) -> None:  # type: ignore[no-untyped-def]
                raise VoleryError("refused")

        async with make(Refusing()) as model:
            with pytest.raises(VoleryError, match="refused"):
                await model.embed("x")

    run(test)


def test_a_trace_that_cannot_be_written_leaves_nobody_waiting() -> None:
    lines = 0

    def write(line: str) -> None:
        nonlocal lines
        lines += 1
        if lines > 4:
            raise OSError(28, "No space left on device")

    async def test() -> None:
        problems: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: problems.append(context["exception"]))
        gate = Gate()
        config = SchedulerConfig(latency=QueuePolicy(max_queue_size=8))
        async with make(gate, recorder=TraceRecorder(write), config=config) as model:
            near(await _with(gate, model.embed("x")), "x")
            tasks = [asyncio.create_task(model.embed("y")) for _ in range(3)]
            tasks.append(asyncio.create_task(model.embed(["z"] * 100)))  # waits for room
            await settle()
            gate.release()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(r) for r in results} == {VoleryError}
            with pytest.raises(VoleryError, match="No space left"):
                await model.embed("later")
        assert [type(p) for p in problems] == [OSError]
        assert gate.closed == 1

    run(test)


# --- limits


def test_never_fits_has_both_numbers() -> None:
    async def test() -> None:
        async with make(config=SchedulerConfig(max_batch_tokens=10)) as model:
            with pytest.raises(NeverFits, match=r"texts\[1\] has 18 tokens.*at most 10"):
                await model.embed(["a", "a text with many tokens"[:20], "b"])
            near(await model.embed("a b"), "a b")

    run(test)


def test_C3_single_texts_and_lists_are_overloaded_alike() -> None:
    config = SchedulerConfig(latency=QueuePolicy(max_queue_size=10))

    async def test() -> None:
        for shape in ("x", ["x"]):
            gate = Gate()
            async with make(gate, config=config) as model:
                tasks = [asyncio.create_task(model.embed(shape)) for _ in range(30)]  # type: ignore[arg-type]
                await settle()
                refused = [t for t in tasks if t.done()]
                assert len(refused) == 20
                for task in refused:
                    error = task.exception()
                    assert isinstance(error, Overloaded)
                    assert error.retry_after_ms > 0
                gate.open = True
                gate.release()
                await asyncio.gather(*tasks, return_exceptions=True)

    run(test)


def test_C3_long_lists_wait_for_room_instead_of_failing() -> None:
    config = SchedulerConfig(
        latency=QueuePolicy(max_queue_size=10), throughput=QueuePolicy(max_queue_size=10)
    )

    async def test() -> None:
        async with make(config=config) as model:
            lists = [[f"{k}.{i}" for i in range(100)] for k in range(10)]
            results = await asyncio.gather(*[model.embed(texts) for texts in lists])
            for texts, vectors in zip(lists, results, strict=True):
                for text, vector in zip(texts, vectors, strict=True):
                    near(vector, text)

    run(test)


def test_waiting_for_room_ends_with_close_and_with_cancel() -> None:
    config = SchedulerConfig(latency=QueuePolicy(max_queue_size=4))

    async def test() -> None:
        gate = Gate()
        model = make(gate, config=config)
        lists = [asyncio.create_task(model.embed(["ab"] * 40)) for _ in range(4)]
        await settle()
        lists[1].cancel()
        lists[2].cancel()
        await settle()
        closing = asyncio.create_task(model.close())
        await settle()
        gate.release()
        await closing
        results = await asyncio.gather(*lists, return_exceptions=True)
        assert [type(r) for r in results] == [
            Aborted,
            asyncio.CancelledError,
            asyncio.CancelledError,
            Aborted,
        ]

    run(test)


def test_C1_deadline_fails_on_time_even_on_a_stuck_device() -> None:
    async def test() -> None:
        gate = Gate()
        async with make(gate) as model:
            started = time.monotonic()
            tasks = [asyncio.create_task(model.embed(f"t {i}", deadline_ms=30)) for i in range(3)]
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(r) for r in results} == {DeadlineExceeded}
            assert time.monotonic() - started > 0.029
            gate.release()
            await settle()
            near(await _with(gate, model.embed("x", deadline_ms=60_000)), "x")

    run(test)


def test_timeout_of_a_class_is_a_typed_error() -> None:
    async def test() -> None:
        gate = Gate()
        config = SchedulerConfig(latency=QueuePolicy(timeout_ms=10))
        async with make(gate, config=config) as model:
            first = asyncio.create_task(model.embed("first"))
            await settle()
            with pytest.raises(DeadlineExceeded, match="first step"):
                await model.embed("second")
            gate.release()
            near(await first, "first")

    run(test)
