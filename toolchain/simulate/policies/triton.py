"""NVIDIA Triton's dynamic batcher (user guide, "Batchers", and ``ModelDynamicBatching``).

- Requests join a batch in the order of arrival, up to ``max_batch_size`` rows.
- With preferred sizes, a batch of the largest preferred size that can be formed is sent at
  once; otherwise as many requests as there are.
- With a queue delay, a batch smaller than the maximum (or than every preferred size) waits
  until its oldest request has waited so long.
- With priority levels, requests of a higher level go first.
- A queue policy gives requests a timeout for their time in the queue: REJECT ends them,
  DELAY lets all that have not timed out go first. It also bounds the queue's length.

A request is a unit: the rows of one request are never split over batches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from runtime_py.batching import BoundBy, FinishReason, TrafficClass
from toolchain.simulate.policies.dispatcher import Batch, Dispatcher, Job
from toolchain.simulate.policies.setup import Setup


class TimeoutAction(StrEnum):
    REJECT = "reject"
    DELAY = "delay"


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """``ModelQueuePolicy``; 0 = unlimited."""

    timeout_ns: int = 0
    timeout_action: TimeoutAction = TimeoutAction.REJECT
    max_queue_size: int = 0


@dataclass(frozen=True, slots=True)
class DynamicBatching:
    """``ModelDynamicBatching`` and the model's ``max_batch_size``.

    Attributes:
        priority_levels: 1, or 2: latency requests are of level 1, throughput of level 2.
        policies: of each level, from 1; the last one also holds for those after it.
    """

    max_batch_size: int
    preferred_batch_size: Sequence[int] = ()
    max_queue_delay_ns: int = 0
    priority_levels: int = 1
    policies: Sequence[QueuePolicy] = field(default=(QueuePolicy(),))


class _Level:
    """The queue of one priority level."""

    def __init__(self, policy: QueuePolicy) -> None:
        self.policy = policy
        self.jobs: deque[Job] = deque()
        self.delayed: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self.jobs) + len(self.delayed)


class Triton(Dispatcher):
    """One model instance behind the dynamic batcher."""

    splits_lists = False

    def __init__(self, setup: Setup, batching: DynamicBatching) -> None:
        super().__init__(setup)
        self._batching = batching
        last = len(batching.policies) - 1
        self._levels = [
            _Level(batching.policies[min(i, last)]) for i in range(batching.priority_levels)
        ]

    def admit(self, job: Job) -> None:
        bulk = job.request.traffic is TrafficClass.THROUGHPUT
        level = self._levels[-1 if bulk else 0]
        limit = level.policy.max_queue_size
        if job.rows > self._batching.max_batch_size:
            self._split(job)
        elif limit and len(level) >= limit:
            self.reject(job.request, FinishReason.OVERLOADED, job.arrival_ns)
        else:
            level.jobs.append(job)

    def _split(self, job: Job) -> None:
        """Triton refuses a request beyond the maximum, so its client sends smaller ones."""
        size = self._batching.max_batch_size
        for at in range(0, job.rows, size):
            self.admit(Job(job.request, job.first + at, job.num_tokens[at : at + size]))

    def expire(self, now_ns: int) -> int:
        wake_ns = -1
        for level in self._levels:
            policy, jobs = level.policy, level.jobs
            while policy.timeout_ns and jobs:
                at_ns = jobs[0].arrival_ns + policy.timeout_ns
                if jobs[0].request.alive and at_ns > now_ns:
                    wake_ns = at_ns if wake_ns < 0 else min(wake_ns, at_ns)
                    break
                job = jobs.popleft()
                if not job.request.alive:
                    continue
                if policy.timeout_action is TimeoutAction.REJECT:
                    self.reject(job.request, FinishReason.TIMEOUT, now_ns)
                else:
                    level.delayed.append(job)
        return wake_ns

    def next_batch(self, now_ns: int) -> Batch:
        batching = self._batching
        jobs, full = self._candidates()
        rows = [0]
        for job in jobs:
            rows.append(rows[-1] + job.rows)
        preferred = [i for i, n in enumerate(rows) if n in batching.preferred_batch_size]
        full = full or rows[-1] == batching.max_batch_size
        count = preferred[-1] if preferred else len(jobs)
        if not count:
            return Batch()
        oldest_ns = min(job.arrival_ns for job in jobs[:count])
        if not preferred and not full and now_ns < oldest_ns + batching.max_queue_delay_ns:
            return Batch(wake_ns=oldest_ns + batching.max_queue_delay_ns)
        bound = BoundBy.SEQS if full or count < len(jobs) else BoundBy.ALL
        batch = Batch(jobs[:count], bound=bound)
        for queue in self._queues():
            while queue and (count or not queue[0].request.alive):
                count -= queue.popleft().request.alive
        return batch

    def _queues(self) -> Iterator[deque[Job]]:
        """In the order in which they are served."""
        for level in self._levels:
            yield level.jobs
            yield level.delayed

    def _candidates(self) -> tuple[list[Job], bool]:
        """The first jobs that fit into a batch together, and whether another one waits."""
        jobs: list[Job] = []
        rows = 0
        for queue in self._queues():
            for job in queue:
                if not job.request.alive:
                    continue
                rows += job.rows
                if rows > self._batching.max_batch_size:
                    return jobs, True
                jobs.append(job)
        return jobs, False
