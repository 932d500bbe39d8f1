"""Backpressure: callers that wait until the queue takes their next piece."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from runtime_py.batching import TrafficClass


class Room:
    """First come, first served, per traffic class.

    Args:
        has_room: whether the queue of a class would take so many more sequences now.
    """

    def __init__(self, has_room: Callable[[int, TrafficClass], bool]) -> None:
        self._has_room = has_room
        self._ended = False
        self._waiting: dict[TrafficClass, deque[tuple[int, asyncio.Future[None]]]] = {
            traffic: deque() for traffic in TrafficClass
        }

    async def wait(self, num_seqs: int, traffic: TrafficClass) -> None:
        """Return when ``num_seqs`` more sequences fit, or after `end`.

        The caller must submit before it awaits anything else.
        """
        waiting = self._waiting[traffic]
        ahead = len(waiting) > 0
        first = True
        while not self._ended and (ahead or not self._has_room(num_seqs, traffic)):
            waiter = (num_seqs, asyncio.get_running_loop().create_future())
            # Who had its turn and found the room taken goes back to the front.
            (waiting.append if first else waiting.appendleft)(waiter)
            ahead = first = False
            try:
                await waiter[1]
            except asyncio.CancelledError:
                if waiter in waiting:
                    waiting.remove(waiter)
                self.wake()  # whoever is next may fit, or had its turn given to us
                raise

    def wake(self) -> None:
        """Give the first of each class its turn, if it fits; call it after every change."""
        for traffic, waiting in self._waiting.items():
            while waiting and (self._ended or self._has_room(waiting[0][0], traffic)):
                future = waiting.popleft()[1]
                if not future.done():
                    future.set_result(None)
                    if not self._ended:
                        break  # it submits now; the change that makes wakes the next

    def end(self) -> None:
        """Let everybody go, now and later."""
        self._ended = True
        self.wake()
