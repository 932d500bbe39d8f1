"""Runs a blocking iterator on a thread of its own and hands its items to the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


async def pump(items: Iterator[T], chunk: int = 64, depth: int = 4) -> AsyncIterator[T]:
    """Yield ``items`` in order, at most about ``chunk * depth`` read ahead.

    The thread is a daemon, so a read that blocks (a terminal, a quiet pipe) delays neither
    the loop nor the end of the process. An exception of the iterator is raised here, after
    the items before it.
    """
    loop = asyncio.get_running_loop()
    ready: asyncio.Queue[list[T] | BaseException | None] = asyncio.Queue()
    room = threading.Semaphore(depth)
    closed = threading.Event()

    def hand_over(what: list[T] | BaseException | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended; nobody waits any more
            loop.call_soon_threadsafe(ready.put_nowait, what)

    def read() -> None:
        part: list[T] = []
        try:
            while True:
                room.acquire()
                if closed.is_set():
                    return
                part = []
                part.extend(islice(items, chunk))
                hand_over(part or None)
                if not part:
                    return
        except BaseException as error:
            hand_over(part)
            hand_over(error)

    threading.Thread(target=read, name="volery-reader", daemon=True).start()
    try:
        while (got := await ready.get()) is not None:
            if isinstance(got, BaseException):
                raise got
            for item in got:
                yield item
            room.release()
    finally:
        closed.set()
        room.release()
