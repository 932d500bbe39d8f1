"""mosec: ``max_batch_size`` and ``max_wait_time`` of a worker.

A worker that is free takes the first task, then collects until the batch is full or
``max_wait_time`` has passed *since it took the first one*. The server takes texts one at a
time; a request that is not done after the service's timeout is answered with an error.
"""

from __future__ import annotations

from runtime_py.batching import FinishReason
from toolchain.simulate.policies.dispatcher import Batch, Dispatcher, take_rows
from toolchain.simulate.policies.setup import Setup


class Mosec(Dispatcher):
    """One worker of one stage.

    Args:
        max_batch_size: most tasks of a batch.
        max_wait_ns: how long it waits for more after the first.
        timeout_ns: of the service, 3 s by default.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        max_batch_size: int,
        max_wait_ns: int,
        timeout_ns: int = 3_000_000_000,
    ) -> None:
        super().__init__(setup)
        self._max_batch = max_batch_size
        self._max_wait_ns = max_wait_ns
        self._timeout_ns = timeout_ns
        self._taken_ns = -1  # when the first task of the batch was taken

    def expire(self, now_ns: int) -> int:
        queue = self.queue
        while queue and (
            not queue[0].request.alive or now_ns - queue[0].arrival_ns >= self._timeout_ns
        ):
            job = queue.popleft()
            if job.request.alive:
                self.reject(job.request, FinishReason.TIMEOUT, now_ns)
        return queue[0].arrival_ns + self._timeout_ns if queue else -1

    def next_batch(self, now_ns: int) -> Batch:
        if not self.queue:
            self._taken_ns = -1
            return Batch()
        if self._taken_ns < 0:
            self._taken_ns = now_ns
        end_ns = self._taken_ns + self._max_wait_ns
        if len(self.queue) < self._max_batch and now_ns < end_ns:
            return Batch(wake_ns=end_ns)
        self._taken_ns = -1
        return take_rows(self.queue, self._max_batch)
