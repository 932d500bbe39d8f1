"""A generation as its caller holds it: iterate over it, or await the whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from types import TracebackType
from typing import Any, Self

from runtime_py.engine import Engine, GenerateRequest
from runtime_py.engine.generate import SampleState
from runtime_py.errors import Aborted
from runtime_py.generation.results import Completion, GenerateResult, TextPiece, Usage

_MS = 1e6


class GenerationStream:
    """``async for piece in stream`` yields tokens as they come; ``await stream`` the whole.

    Nothing runs before the first of either. Tokens that nobody reads wait here, at most
    ``max_tokens`` of them, and hold nobody up. Leaving the loop, `aclose`, cancelling the
    task and dropping the stream all end the generation within one step.

    Args:
        engine: runs it.
        start: submits it; called once, on the loop.
    """

    def __init__(self, engine: Engine, start: Callable[[], GenerateRequest]) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._start: Callable[[], GenerateRequest] | None = start
        self._request: GenerateRequest | None = None
        self._texts: list[list[str]] = []
        self._logprobs: list[list[float]] = []
        self._reading = False
        self._over = False

    def __aiter__(self) -> AsyncIterator[TextPiece]:
        return self

    async def __anext__(self) -> TextPiece:
        """The next piece of any sample.

        Raises:
            Overloaded, DeadlineExceeded, NonFinite, OutOfMemory, DeviceLost, Aborted,
            NeverFits: see `runtime_py.errors`; earlier pieces have been yielded by then.
        """
        if self._over:
            raise StopAsyncIteration
        if self._reading:
            raise RuntimeError("the stream is being read by another task")
        self._reading = True
        try:
            request = self._begin()
            while True:
                for sample in request.samples:
                    if sample.fresh:
                        return self._piece(request, sample)
                if request.future.done():
                    self._over = True
                    request.future.result()  # raises why it failed
                    raise StopAsyncIteration
                await request.changed()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        finally:
            self._reading = False

    def __await__(self) -> Generator[Any, None, GenerateResult]:
        return self.result().__await__()

    async def result(self) -> GenerateResult:
        """Wait for the end, and return everything, pieces that were read included."""
        async for _ in self:
            pass
        request = self._request
        if request is None or not request.future.done():
            raise Aborted("the stream was closed before its end; call the model again")
        request.future.result()
        completions = []
        for sample in request.samples:
            first_ns, last_ns = sample.first_ns, sample.last_ns
            count = len(sample.tokens)
            completions.append(
                Completion(
                    "".join(self._texts[sample.index]),
                    list(sample.tokens),
                    sample.finish_reason or "stop",
                    self._logprobs[sample.index] if request.options.top_logprobs >= 0 else None,
                    (last_ns - first_ns) / _MS / (count - 1) if count > 1 else 0.0,
                )
            )
        first_ns = min(s.first_ns for s in request.samples)
        return GenerateResult(
            completions,
            Usage(
                len(request.prompt),
                request.cached_tokens,
                sum([len(s.tokens) for s in request.samples]),
            ),
            request.queue_ns / _MS,
            (first_ns - request.arrival_ns) / _MS,
            request.options.seed,
        )

    async def aclose(self) -> None:
        """End the generation now. Idempotent, and fine after the end."""
        self._over = True
        self._start = None
        if self._request is not None:
            self._engine.abort(self._request)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        request = getattr(self, "_request", None)
        if request is not None and not request.future.done() and not self._loop.is_closed():
            # Wherever the collector runs, the engine belongs to its loop
            self._loop.call_soon_threadsafe(self._engine.abort, request)

    def _begin(self) -> GenerateRequest:
        if self._request is None:
            if self._start is None:
                raise StopAsyncIteration
            start, self._start = self._start, None
            self._request = start()
            self._texts = [[] for _ in self._request.samples]
            self._logprobs = [[] for _ in self._request.samples]
        return self._request

    def _piece(self, request: GenerateRequest, sample: SampleState) -> TextPiece:
        sampled = sample.fresh.popleft()
        reader = sample.reader
        if request.options.stop:
            text = sample.texts.popleft()
        elif sampled.token_id in request.stop_ids:
            text = ""
        else:
            text = reader.feed(sampled.token_id)
        reason = None if sample.fresh else sample.finish_reason
        if reason is not None:
            text += reader.flush()
        self._texts[sample.index].append(text)
        self._logprobs[sample.index].append(sampled.logprob)
        wants = request.options.top_logprobs >= 0
        return TextPiece(
            text,
            sampled.token_id,
            sample.index,
            sampled.logprob if wants else None,
            sampled.top,
            reason,
        )
