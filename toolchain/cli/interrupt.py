"""Ctrl-C and SIGTERM end a command in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from runtime_py.errors import Aborted

_T = TypeVar("_T")
_INTERRUPTED = 128


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run ``work`` on a new event loop; its exit status, or 128 + the signal that ended it.

    The first signal cancels ``work``, which cleans up; a second one ends it at once.
    """
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, int]) -> int:
    loop, received = asyncio.get_running_loop(), list[int]()
    task = asyncio.ensure_future(work)

    def stop(number: int) -> None:
        received.append(number)
        loop.remove_signal_handler(number)
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows: asyncio's own Ctrl-C
            loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:
            raise
        return _INTERRUPTED + received[0]


async def in_thread(work: Callable[[Callable[[], None]], _T]) -> _T:
    """Run ``work(check)`` off the loop, so that signals are heard meanwhile.

    ``work`` calls ``check`` now and then, which raises once the command is being ended.
    Its thread has ended when this returns or raises.
    """
    ended = False

    def check() -> None:
        if ended:
            raise Aborted("the command was ended")

    working = asyncio.ensure_future(asyncio.to_thread(work, check))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        ended = True
        await asyncio.wait({working})
        working.exception()  # seen
        raise
