"""The model for scripts: the same methods without ``await``."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar, Unpack

from runtime_py.engine import EngineStats
from runtime_py.errors import Aborted, DeviceLost, InvalidInput, InvalidType
from runtime_py.generation.options import GenerateArguments
from runtime_py.generation.results import GenerateResult, TextPiece
from runtime_py.generation.stream import GenerationStream
from runtime_py.info import ModelInfo
from runtime_py.loading import load
from runtime_py.model import Model
from runtime_py.options import EmbedOptions
from runtime_py.results import EmbedResult

_T = TypeVar("_T")


class SyncModel:
    """A `Model` on an event loop in a thread of its own. Make one with `runtime_py.load_sync`.

    Any thread may call it; concurrent calls are batched together. Options and errors are
    those of `Model`. Use it as a context manager, or `close` it; a model that is forgotten
    ends with a `ResourceWarning`.
    """

    def __init__(self, source: str | os.PathLike[str], **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_run, args=(self._loop,), name="volery-model", daemon=True
        )
        self._thread.start()
        self._stopped = False
        self._stopping = threading.Lock()
        self._process = os.getpid()
        try:
            self._model: Model = self._wait(load(source, **options))
        except BaseException:
            self._stop()
            raise
        # Also at the end of the program: who waits for a model then would wait for ever,
        # because its thread has stopped
        self._forgotten = weakref.finalize(self, _end, self._model, self._loop, self._process)

    @property
    def info(self) -> ModelInfo:
        return self._model.info

    def embed(self, texts: str | Iterable[str], **options: Unpack[EmbedOptions]) -> Any:
        """`Model.embed`."""
        return self._wait(self._model.embed(_listed(texts), **options))

    def embed_with_info(
        self, texts: str | Iterable[str], **options: Unpack[EmbedOptions]
    ) -> EmbedResult:
        """`Model.embed_with_info`."""
        return self._wait(self._model.embed_with_info(_listed(texts), **options))

    def embed_stream(self, texts: Iterable[str], **options: Any) -> Iterator[Any]:
        """`Model.embed_stream`; ``texts`` is read on the model's own thread."""
        stream = self._model.embed_stream(texts, **options)
        try:
            while (row := self._wait(_next(stream))) is not None:
                yield row
        finally:
            if self._unusable() is None:
                self._wait(stream.aclose())  # type: ignore[attr-defined]

    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[GenerateArguments]
    ) -> GenerateResult:
        """`Model.generate`, to its end."""
        return self._wait(self._whole(lambda: self._model.generate(prompt, **options)))

    def generate_stream(
        self, prompt: str | Sequence[int], **options: Unpack[GenerateArguments]
    ) -> Generator[TextPiece, None, None]:
        """`Model.generate`, piece by piece; closing the generator ends it."""
        return self._pieces(lambda: self._model.generate(prompt, **options))

    def chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> GenerateResult:
        """`Model.chat`, to its end."""
        return self._wait(self._whole(lambda: self._model.chat(messages, **options)))

    def chat_stream(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> Generator[TextPiece, None, None]:
        """`Model.chat`, piece by piece; closing the generator ends it."""
        return self._pieces(lambda: self._model.chat(messages, **options))

    async def _whole(self, make: Callable[[], GenerationStream]) -> GenerateResult:
        return await make()

    def _pieces(self, make: Callable[[], GenerationStream]) -> Generator[TextPiece, None, None]:
        async def begin() -> GenerationStream:
            return make()

        stream = self._wait(begin())
        try:
            while (piece := self._wait(_next(stream))) is not None:
                yield piece
        finally:
            if self._unusable() is None:
                self._wait(stream.aclose())

    def stats(self) -> EngineStats:
        """`Model.stats`."""

        async def read() -> EngineStats:
            return self._model.stats()

        return self._wait(read())

    def close(self, *, drain: bool = False) -> None:
        """`Model.close`, and the end of the thread."""
        if self._process != os.getpid():
            return
        with self._stopping:
            if not self._stopped:
                self._forgotten.detach()
                self._wait(self._model.close(drain=drain))
                self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise InvalidType("a loaded model cannot be copied or pickled; load it in every process")

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        error = self._unusable()
        if error is not None:
            work.close()
            raise error
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def _unusable(self) -> Exception | None:
        """Why a call could not be answered."""
        if self._process != os.getpid():
            return DeviceLost(
                "the model was loaded before this process was forked, and its threads are in "
                "the other one; load it in every process"
            )
        if self._stopped or self._loop.is_closed() or not self._thread.is_alive():
            return Aborted("the model is closed; load it again")
        if threading.current_thread() is self._thread:
            return InvalidInput(
                "the model is called from its own thread, where embed_stream reads its texts; "
                "make the texts before, or with another model"
            )
        return None

    def _stop(self) -> None:
        self._stopped = True
        # What was cancelled still ends, such as loading after Ctrl-C
        asyncio.run_coroutine_threadsafe(_others_ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _listed(texts: str | Iterable[str]) -> str | Iterable[str]:
    """Generators run on the caller's thread, where they belong."""
    if isinstance(texts, Iterator):
        return list(texts)
    return texts


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """The model's own thread."""
    try:
        loop.run_forever()
    finally:
        loop.close()


def _end(model: Model, loop: asyncio.AbstractEventLoop, process: int) -> None:
    """What `SyncModel.close` does, without waiting: the collector may run on any thread."""
    if process != os.getpid() or loop.is_closed():
        return

    async def end() -> None:
        await model.close()
        loop.stop()

    asyncio.run_coroutine_threadsafe(end(), loop)
    warnings.warn("a model was not closed; call its close()", ResourceWarning, stacklevel=2)


async def _others_ended() -> None:
    await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)


async def _next(stream: AsyncIterator[_T]) -> _T | None:
    return await anext(stream, None)
