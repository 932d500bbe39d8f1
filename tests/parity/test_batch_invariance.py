"""E4: the same bytes for a text, whatever its batch, its order, its class and the threads."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runtime_py as rt
from runtime_py.batching import SchedulerConfig
from tests.parity.texts import varied_texts

POOL = [t[:2000] for t in varied_texts(160)]


class Loaded:
    """One model on its own loop, and every pool text's bytes when embedded alone."""

    def __init__(self, folder: Path, threads: int, config: SchedulerConfig) -> None:
        self._runner = asyncio.Runner()
        self.model = self.run(rt.load(folder, threads=threads, config=config))
        self.alone = self.run(self._alone())

    def run(self, coroutine):
        return self._runner.run(coroutine)

    async def _alone(self) -> list[bytes]:
        return [(await self.model.embed(text)).tobytes() for text in POOL]

    def close(self) -> None:
        self.run(self.model.close())
        self._runner.close()


@pytest.fixture(scope="module", params=["i8", "f32", "i4"])
def models(
    request: pytest.FixtureRequest, minilm_artifacts: Mapping[str, Path]
) -> Iterator[list[Loaded]]:
    folder = minilm_artifacts[request.param]
    configs = [
        (1, SchedulerConfig()),
        (2, SchedulerConfig()),
        (2, SchedulerConfig(max_batch_seqs=3)),
    ]
    loaded = [Loaded(folder, threads, config) for threads, config in configs]
    yield loaded
    for one in loaded:
        one.close()


def test_E4_threads_do_not_matter(models: list[Loaded]) -> None:
    for other in models[1:]:
        assert other.alone == models[0].alone


def test_E4_batch_sizes_and_shuffles(models: list[Loaded]) -> None:
    rng = random.Random(4)
    order = list(range(100))
    free = models[:2]
    # The model that takes three at a time cuts every list alike.
    for size, which in ((2, free), (3, free), (8, free), (17, free), (64, models)):
        rng.shuffle(order)
        for one in which:
            for at in range(0, len(order), size):
                batch = order[at : at + size]
                vectors = one.run(one.model.embed([POOL[i] for i in batch]))
                assert [v.tobytes() for v in vectors] == [models[0].alone[i] for i in batch]


@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, len(POOL) - 1), min_size=1, max_size=12),
            st.sampled_from(["latency", "throughput"]),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_E4_concurrent_requests(
    models: list[Loaded], requests: list[tuple[list[int], str]]
) -> None:
    for one in models:

        async def together(model: rt.Model = one.model) -> list[np.ndarray]:
            return await asyncio.gather(
                *(model.embed([POOL[i] for i in picks], traffic=t) for picks, t in requests)
            )

        for (picks, _), vectors in zip(requests, one.run(together()), strict=True):
            assert [v.tobytes() for v in vectors] == [models[0].alone[i] for i in picks]


@settings(max_examples=15)
@given(st.lists(st.text(max_size=300), min_size=1, max_size=8))
def test_E4_any_text(models: list[Loaded], texts: list[str]) -> None:
    texts = [t.encode("utf-8", "replace").decode() for t in texts]
    whole = [v.tobytes() for v in models[1].run(models[1].model.embed(texts))]
    for text, expected in zip(texts, whole, strict=True):
        assert models[0].run(models[0].model.embed(text)).tobytes() == expected
