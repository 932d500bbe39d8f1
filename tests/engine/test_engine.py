"""`Engine` itself: what `Model` does not exercise."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from runtime_py import Aborted
from runtime_py.batching import SchedulerConfig, TraceRecorder
from runtime_py.engine import Engine
from tests.engine.tiny import WIDTH, Gate, ids_of, run, settle, truth


def rows(output: bytearray) -> np.ndarray:
    return np.frombuffer(output, np.float32).reshape(-1, WIDTH)


def test_every_sequence_has_its_own_pool_skip() -> None:
    async def test() -> None:
        engine = Engine(Gate(open=True), WIDTH)
        ids = [ids_of("abc"), ids_of("abcdef"), ids_of("x")]
        output = await engine.result(engine.submit(ids, pool_skips=[2, 0, 1]))
        for row, one, skip in zip(rows(output), ids, (2, 0, 1), strict=True):
            np.testing.assert_allclose(row, truth(one, skip), atol=1e-6)
        await engine.close()

    run(test)


def test_C6_cancelling_the_wait_aborts_the_request() -> None:
    async def test() -> None:
        gate = Gate()
        engine = Engine(gate, WIDTH)
        first = engine.submit([ids_of("first")])
        await settle()
        waiting = asyncio.create_task(engine.result(engine.submit([ids_of("second")])))
        await settle()
        waiting.cancel()
        await settle()
        assert engine.stats().queued_seqs == 0
        gate.release()
        await engine.result(first)
        assert len(gate.steps) == 1
        await engine.close()

    run(test)


def test_abort_is_idempotent_and_its_owner_is_told() -> None:
    async def test() -> None:
        gate = Gate(open=True)
        engine = Engine(gate, WIDTH)
        request = engine.submit([ids_of("x")])
        engine.abort(request)
        engine.abort(request)
        with pytest.raises(Aborted):
            await engine.result(request)
        done = engine.submit([ids_of("y")])
        output = await engine.result(done)
        engine.abort(done)  # too late: it has its result
        assert await engine.result(done) is output
        await engine.close()

    run(test)


def test_time_comes_from_the_clock_it_was_given() -> None:
    async def test() -> None:
        now = 5_000_000_000

        lines: list[str] = []
        gate = Gate()
        engine = Engine(
            gate,
            WIDTH,
            config=SchedulerConfig(),
            recorder=TraceRecorder(lines.append),
            clock=lambda: now,
        )
        first = engine.submit([ids_of("a")])
        second = engine.submit([ids_of("b")], deadline_ns=now + 10**12)
        await settle()
        now += 7_000_000
        gate.release()
        await asyncio.gather(engine.result(first), engine.result(second))
        assert engine.now_ns() == now
        assert '"t":5000000000}' in lines[1]
        assert '"t":5007000000}' in lines[2]
        await engine.close()

    run(test)
