"""Clients that ask again when they have their answer."""

from __future__ import annotations

import heapq
import random

from toolchain.simulate.requests import SimRequest
from toolchain.simulate.workloads.source import Source

NS_PER_S = 1_000_000_000


class ClosedLoop:
    """A fixed number of clients; each waits for its answer, thinks, and asks again.

    Args:
        source: what they ask for.
        clients: how many.
        think_s: mean time between an answer and the next request; 0 = at once.
        duration_s: after which nobody asks again.
        rng: of sizes and thinking.
    """

    def __init__(
        self,
        source: Source,
        *,
        clients: int,
        think_s: float,
        duration_s: float,
        rng: random.Random,
    ) -> None:
        self._source, self._rng = source, rng
        self._think_s = think_s
        self._end_ns = int(duration_s * NS_PER_S)
        self._next_id = 0
        # They do not begin all at once, unless nobody ever thinks
        starts = [self._thinking_ns() for _ in range(clients)]
        self._asking = [(at, client) for client, at in enumerate(starts)]
        heapq.heapify(self._asking)

    def next_ns(self) -> int:
        return self._asking[0][0] if self._asking else -1

    def pop(self) -> SimRequest:
        at, client = heapq.heappop(self._asking)
        request = self._source.request(self._next_id, at, self._source.draw(self._rng), client)
        self._next_id += 1
        return request

    def finished(self, request: SimRequest, now_ns: int) -> None:
        at = now_ns + self._thinking_ns()
        if at < self._end_ns:
            heapq.heappush(self._asking, (at, request.client))

    def _thinking_ns(self) -> int:
        if self._think_s <= 0:
            return 0
        return int(self._rng.expovariate(1.0 / self._think_s) * NS_PER_S)
