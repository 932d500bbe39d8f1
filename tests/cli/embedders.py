"""Deterministic embedders for the job's own tests: a text's vector is a hash of the text."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

import numpy as np

from toolchain.embedding.job import Embedded

DIMENSIONS = 8


def vector_of(text: str) -> np.ndarray:
    raw = hashlib.sha256(text.encode()).digest()
    return np.frombuffer(raw, dtype="<i4").astype(np.float32) / np.float32(2**31)


class HashEmbedder:
    """Counts what it computed; ``stop`` may end the run before any text."""

    def __init__(self, stop: Callable[[int], None] = lambda _: None) -> None:
        self.computed: list[str] = []
        self._stop = stop

    async def __call__(self, texts: AsyncIterator[str]) -> AsyncIterator[Embedded]:
        async for text in texts:
            self._stop(len(self.computed))
            self.computed.append(text)
            yield Embedded(vector_of(text), len(text.split()) + 2, len(text) > 1000)
            if len(self.computed) % 100 == 0:
                await asyncio.sleep(0)
