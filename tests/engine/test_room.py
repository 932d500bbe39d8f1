"""Room in a queue: who waits for it, in what order, and how the wait ends."""

from __future__ import annotations

import asyncio

from runtime_py.batching import TrafficClass
from runtime_py.engine.room import Room
from tests.engine.tiny import run, settle

LATENCY, BULK = TrafficClass.LATENCY, TrafficClass.THROUGHPUT


class Queue:
    def __init__(self) -> None:
        self.free = {LATENCY: 0, BULK: 0}
        self.room = Room(lambda n, traffic: n <= self.free[traffic])
        self.log: list[str] = []

    async def enter(self, name: str, n: int, traffic: TrafficClass = BULK) -> None:
        await self.room.wait(n, traffic)
        self.free[traffic] -= n
        self.log.append(name)

    def task(self, name: str, n: int, traffic: TrafficClass = BULK) -> asyncio.Task[None]:
        return asyncio.create_task(self.enter(name, n, traffic))


def test_first_come_first_served_per_class() -> None:
    async def test() -> None:
        queue = Queue()
        tasks = [queue.task("a", 5), queue.task("b", 1), queue.task("live", 1, LATENCY)]
        await settle()
        queue.free[BULK] = 4  # not enough for the first, and nobody overtakes it
        queue.free[LATENCY] = 1
        queue.room.wake()
        await settle()
        late = queue.task("c", 1)
        await settle()
        assert queue.log == ["live"]
        queue.free[BULK] = 7
        for _ in range(3):
            queue.room.wake()
            await settle()
        assert queue.log == ["live", "a", "b", "c"]
        await asyncio.gather(*tasks, late)

    run(test)


def test_a_turn_that_is_not_used_goes_on() -> None:
    async def test() -> None:
        queue = Queue()
        first, second = queue.task("a", 2), queue.task("b", 2)
        await settle()
        queue.free[BULK] = 2
        queue.room.wake()
        first.cancel()  # its turn had come already
        await settle()
        assert queue.log == ["b"]
        await asyncio.gather(first, second, return_exceptions=True)

    run(test)


def test_who_finds_the_room_taken_goes_back_to_the_front() -> None:
    async def test() -> None:
        queue = Queue()
        first, second = queue.task("a", 2), queue.task("b", 2)
        await settle()
        queue.free[BULK] = 2
        queue.room.wake()
        queue.free[BULK] = 0  # somebody who does not wait was quicker
        await settle()
        assert queue.log == []
        queue.free[BULK] = 4
        for _ in range(2):
            queue.room.wake()
            await settle()
        assert queue.log == ["a", "b"]
        await asyncio.gather(first, second)

    run(test)


def test_the_end_lets_everybody_go() -> None:
    async def test() -> None:
        queue = Queue()
        tasks = [queue.task("x", 9) for _ in range(3)]
        await settle()
        queue.room.end()
        await asyncio.gather(*tasks)
        await queue.enter("later", 9)
        assert len(queue.log) == 4

    run(test)
