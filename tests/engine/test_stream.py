"""`Model.embed_stream`: order, bounded memory, early ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import numpy as np
import pytest

from runtime_py import InvalidInput, InvalidType
from tests.engine.tiny import MAX_TOKENS, Gate, ids_of, make, run, truth


@pytest.mark.parametrize("window", [1, 7, 1024])
def test_one_vector_per_text_in_order(window: int) -> None:
    async def test() -> None:
        async with make() as model:
            texts = [f"text {i}" for i in range(200)]

            async def source() -> AsyncIterator[str]:
                for text in texts:
                    yield text

            whole = await model.embed(texts)
            for stream in (texts, iter(texts), source()):
                rows = [v async for v in model.embed_stream(stream, window=window)]
                assert [r.tobytes() for r in rows] == [w.tobytes() for w in whole]
            np.testing.assert_allclose(whole[7], truth(ids_of("text 7")), atol=1e-6)

    run(test)


def test_a_slow_consumer_holds_the_reading_back() -> None:
    async def test() -> None:
        read = 0

        def source() -> Iterator[str]:
            nonlocal read
            for i in range(10_000):
                read += 1
                yield f"text {i}"

        async with make() as model:
            count = 0
            async for _ in model.embed_stream(source(), window=64):
                count += 1
                assert read <= count + 2 * 64
                if count == 500:
                    break
            assert model.stats().seqs < 800

    run(test)


def test_an_early_end_aborts_what_is_in_flight() -> None:
    async def test() -> None:
        gate = Gate()
        async with make(gate) as model:
            stream = model.embed_stream([f"text {i}" for i in range(1000)], window=100)
            first = asyncio.ensure_future(anext(stream))
            while not gate.held:
                await asyncio.sleep(0.001)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            await stream.aclose()  # type: ignore[attr-defined]
            gate.release()
            await asyncio.sleep(0)
            assert model.stats().requests == 0
            assert len(gate.steps) == 1

    run(test)


def test_a_bad_item_names_its_place_after_the_earlier_results() -> None:
    async def test() -> None:
        async with make() as model:
            texts = ["ok"] * 300 + [5]
            with pytest.raises(InvalidType, match=r"texts\[300\]"):
                async for _ in model.embed_stream(texts, window=64):  # type: ignore[arg-type]
                    pass
            long = ["ok"] * 300 + ["x" * 2 * MAX_TOKENS]
            with pytest.raises(Exception, match=r"texts\[300\]"):
                async for _ in model.embed_stream(long, window=64, truncate="error"):
                    pass
            assert model.stats().requests == 0

    run(test)


def test_options_and_empty_sources() -> None:
    async def test() -> None:
        async with make() as model:
            assert [v async for v in model.embed_stream([])] == []
            rows = [v async for v in model.embed_stream(["a"], dimensions=4, dtype="float16")]
            assert rows[0].shape == (4,)
            assert rows[0].dtype == np.float16
            for window in (0, -1, 2.5, True):
                with pytest.raises(InvalidInput, match="window"):
                    await anext(model.embed_stream(["a"], window=window))  # type: ignore[arg-type]
            for texts in ("text", b"text", {"a": 1}, 5):
                with pytest.raises(InvalidType, match="texts is"):
                    await anext(model.embed_stream(texts))  # type: ignore[arg-type]

    run(test)
