"""LitServe: ``max_batch_size`` and ``batch_timeout`` of its batched loop.

The worker collects for ``batch_timeout`` seconds *from the moment it became free*, or until
the batch is full, whether or not anything has arrived; an empty collection starts again. With
a timeout of 0 it takes what is there. A request older than the server's timeout is dropped
when it is collected. The server takes texts one at a time.
"""

from __future__ import annotations

from collections import deque

from runtime_py.batching import FinishReason
from toolchain.simulate.policies.dispatcher import Batch, Dispatcher, Job, take_rows
from toolchain.simulate.policies.setup import Setup


class LitServe(Dispatcher):
    """One worker of a LitServe server.

    Args:
        max_batch_size: most requests of a batch.
        batch_timeout_ns: how long it collects.
        request_timeout_ns: of the server, 30 s by default.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        max_batch_size: int,
        batch_timeout_ns: int = 0,
        request_timeout_ns: int = 30_000_000_000,
    ) -> None:
        super().__init__(setup)
        self._max_batch = max_batch_size
        self._timeout_ns = batch_timeout_ns
        self._request_timeout_ns = request_timeout_ns
        self._window_ns = 0  # when the current collection began

    def next_batch(self, now_ns: int) -> Batch:
        self._drop_old(self.queue, now_ns)
        timeout_ns = self._timeout_ns
        if timeout_ns and len(self.queue) < self._max_batch:
            if not self.queue:
                return Batch()
            # Windows that ended empty were followed by the next at once
            oldest_ns = max(self.queue[0].arrival_ns, self._window_ns)
            elapsed = (oldest_ns - self._window_ns) // timeout_ns
            end_ns = self._window_ns + (elapsed + 1) * timeout_ns
            if now_ns < end_ns:
                return Batch(wake_ns=end_ns)
        return take_rows(self.queue, self._max_batch)

    def learn(self, jobs: object, started_ns: int, now_ns: int) -> None:
        self._window_ns = now_ns

    def _drop_old(self, queue: deque[Job], now_ns: int) -> None:
        while queue and (
            not queue[0].request.alive or now_ns - queue[0].arrival_ns > self._request_timeout_ns
        ):
            job = queue.popleft()
            if job.request.alive:
                self.reject(job.request, FinishReason.TIMEOUT, now_ns)
