"""A fixed number of clients, each of which sends its next request when it has its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Window:
    """The stretch of time that is measured.

    It opens when every client is warm and closes after ``seconds``. What was begun in it
    is finished, so that slow answers are not left out; `contains` tells what counts.

    Args:
        clients: how many must have called `warm`.
        seconds: how long it stays open.
        clock: seconds, never running backwards.
    """

    def __init__(
        self, clients: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.seconds = seconds
        self._cold = clients
        self._clock = clock
        self._opened: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    async def warm(self) -> None:
        """This client is warm; returns when all are."""
        self._cold -= 1
        if not self._cold:
            self._opened.set_result(self._clock())
        await asyncio.shield(self._opened)

    async def opened(self) -> None:
        """Wait until it opens."""
        await asyncio.shield(self._opened)

    @property
    def is_open(self) -> bool:
        """Another request may begin."""
        return self.contains(self._clock())

    @property
    def progress(self) -> float:
        """Part of it that has passed, 0 to 1."""
        if not self._opened.done():
            return 0.0
        return min((self._clock() - self._opened.result()) / self.seconds, 1.0)

    def contains(self, at: float) -> bool:
        """Whether the moment ``at`` lies in it."""
        if not self._opened.done():
            return False
        return 0.0 <= at - self._opened.result() < self.seconds


async def closed_loop(
    window: Window, clients: int, warmup: int, request: Callable[[int], Awaitable[None]]
) -> None:
    """Let every client send requests until the window closes.

    Args:
        warmup: requests of each client before it opens; they keep coming until the last
            client is warm, so that nobody is measured alone.
        request: sends the request of that number and waits for its answer; numbers are
            never used twice.

    Raises:
        Whatever a request raises; the other clients are cancelled.
    """
    number = 0

    async def client() -> None:
        nonlocal number
        for _ in range(warmup):
            number += 1
            await request(number - 1)
        await window.warm()
        first = True
        while first or window.is_open:
            first = False
            number += 1
            await request(number - 1)

    tasks = [asyncio.ensure_future(client()) for _ in range(clients)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
