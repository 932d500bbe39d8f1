"""Hugging Face text-embeddings-inference: a FIFO with a token budget.

``max_batch_tokens`` bounds a batch, optionally also ``max_batch_requests``; the queue is
walked in the order of arrival and the first entry that does not fit ends the batch, which
runs as soon as the backend is free. For a backend that pads, the budget counts padded
tokens. ``max_concurrent_requests`` texts may be in the server, further ones are refused
(HTTP 429). Every text of a list is an entry of its own.
"""

from __future__ import annotations

from runtime_py.batching import BoundBy, FinishReason
from toolchain.simulate.policies.dispatcher import Batch, Dispatcher, Job
from toolchain.simulate.policies.setup import Setup


class TextEmbeddingsInference(Dispatcher):
    """The router and one backend."""

    def __init__(
        self,
        setup: Setup,
        *,
        max_batch_tokens: int,
        max_batch_requests: int = 0,
        max_concurrent_requests: int = 512,
    ) -> None:
        super().__init__(setup)
        self._max_tokens = max_batch_tokens
        self._max_requests = max_batch_requests
        self._max_concurrent = max_concurrent_requests
        self._inside = 0

    def admit(self, job: Job) -> None:
        if self._inside >= self._max_concurrent:
            self.reject(job.request, FinishReason.OVERLOADED, job.arrival_ns)
            return
        self._inside += 1
        self.queue.append(job)

    def next_batch(self, now_ns: int) -> Batch:
        batch, tokens, longest = Batch(), 0, 0
        while self.queue:
            job = self.queue[0]
            if not job.request.alive:
                self.queue.popleft()
                self._inside -= 1
                continue
            n = job.num_tokens[0]
            count = len(batch.jobs)
            total = max(longest, n) * (count + 1) if self.lane.padded else tokens + n
            if count and (total > self._max_tokens or count == self._max_requests):
                batch.bound = BoundBy.TOKENS if total > self._max_tokens else BoundBy.SEQS
                break
            batch.jobs.append(self.queue.popleft())
            tokens, longest = tokens + n, max(longest, n)
        return batch

    def learn(self, jobs: object, started_ns: int, now_ns: int) -> None:
        assert isinstance(jobs, list)
        self._inside -= len(jobs)
