"""A loaded model as the embedder of a bulk job."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass

from runtime_py import EmbedResult, Model, VoleryError
from toolchain.embedding.job import Embedded
from toolchain.embedding.settings import Truncate

CHUNKS_IN_FLIGHT = 8


@dataclass(frozen=True, slots=True)
class ModelEmbedder:
    """Embeds texts in the throughput class, some chunks at once, results in order.

    Attributes:
        window: most texts in flight; the batching core builds its steps from these.
    """

    model: Model
    window: int = 1024
    prompt_name: str | None = None
    dimensions: int | None = None
    truncate: Truncate = Truncate.END

    async def __call__(self, texts: AsyncIterator[str]) -> AsyncGenerator[Embedded, None]:
        size = max(self.window // CHUNKS_IN_FLIGHT, 1)
        chunks: deque[tuple[list[str], asyncio.Task[EmbedResult]]] = deque()
        try:
            async for chunk in _chunks(texts, size):
                chunks.append((chunk, asyncio.ensure_future(self._embed(chunk))))
                if len(chunks) * size >= self.window:
                    async for result in self._results(*chunks.popleft()):
                        yield result
            while chunks:
                async for result in self._results(*chunks.popleft()):
                    yield result
        finally:
            for _, task in chunks:
                task.cancel()
            await asyncio.gather(*(task for _, task in chunks), return_exceptions=True)

    async def _embed(self, texts: Sequence[str]) -> EmbedResult:
        return await self.model.embed_with_info(
            texts,
            prompt_name=self.prompt_name,
            dimensions=self.dimensions,
            truncate=self.truncate.value,
            traffic="throughput",
        )

    async def _results(
        self, chunk: list[str], task: asyncio.Task[EmbedResult]
    ) -> AsyncIterator[Embedded]:
        """The chunk's results; where it failed, text by text up to the one to blame."""
        try:
            done = [await task]
        except VoleryError:
            if len(chunk) == 1:
                raise
            for text in chunk:
                for row in _rows(await self._embed([text])):
                    yield row
            return
        for row in _rows(done[0]):
            yield row


def _rows(result: EmbedResult) -> list[Embedded]:
    facts = zip(result.vectors, result.token_counts, result.truncated, strict=True)
    return [Embedded(vector, tokens, cut) for vector, tokens, cut in facts]


async def _chunks(texts: AsyncIterator[str], size: int) -> AsyncIterator[list[str]]:
    chunk: list[str] = []
    async for text in texts:
        chunk.append(text)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
