"""What servers that batch whole requests have in common: a queue and a worker.

The worker takes a batch, runs it to its end and takes the next one. What differs is who is
in the batch, whether the worker waits for more, and who is turned away: `next_batch` and
`expire` of the subclasses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime_py.batching import (
    BoundBy,
    Decision,
    EmbeddingReady,
    Event,
    FinishReason,
    Idle,
    RequestArrived,
    RequestFinished,
    SeqSlice,
    StepCompleted,
    StepScheduled,
    StepShape,
    TrafficClass,
)
from toolchain.simulate.policies.setup import Setup


@dataclass(slots=True)
class Pending:
    """A request in the server.

    Attributes:
        left: items whose result is still to come.
        alive: it has not ended.
    """

    request_id: int
    traffic: TrafficClass
    arrival_ns: int
    left: int
    alive: bool = True


@dataclass(slots=True)
class Job:
    """What waits in a queue: consecutive items of a request, at least one.

    Attributes:
        first: number of its first item.
        num_tokens: of each of its items.
    """

    request: Pending
    first: int
    num_tokens: tuple[int, ...]

    @property
    def rows(self) -> int:
        return len(self.num_tokens)

    @property
    def arrival_ns(self) -> int:
        return self.request.arrival_ns


@dataclass(slots=True)
class Batch:
    """What the worker runs next: nothing, then a time to ask again (-1 = at the next event)."""

    jobs: list[Job] = field(default_factory=list)
    wake_ns: int = -1
    bound: BoundBy = BoundBy.ALL


class Dispatcher:
    """A server with one worker that runs on all threads of the device.

    Attributes:
        queue: jobs in arrival order.
        splits_lists: each item of a request is a job of its own, because the server's
            client (or its front end) sends the texts of a list one by one.
    """

    splits_lists = True

    def __init__(self, setup: Setup) -> None:
        (self.lane,) = setup.lanes
        self.queue: deque[Job] = deque()
        self._threads = setup.device.threads
        self._running: list[Job] = []
        self._started_ns = 0
        self._busy = False
        self._next_step = 0
        self._out: list[Decision] = []

    # --- what a server decides

    def next_batch(self, now_ns: int) -> Batch:
        """The worker is free: take its next batch out of the queue."""
        raise NotImplementedError

    def expire(self, now_ns: int) -> int:
        """Turn away who has waited too long; the time at which to look again, or -1."""
        return -1

    def admit(self, job: Job) -> None:
        """Queue a newcomer."""
        self.queue.append(job)

    def learn(self, jobs: Sequence[Job], started_ns: int, now_ns: int) -> None:
        """A batch ended."""

    @property
    def busy(self) -> bool:
        """The worker runs a batch."""
        return self._busy

    def reject(self, request: Pending, reason: FinishReason, now_ns: int) -> None:
        """End a request without a result. Its jobs may stay in queues."""
        request.alive = False
        waited_ns = now_ns - request.arrival_ns
        self._out.append(RequestFinished(request.request_id, reason, value=waited_ns))

    # --- the protocol of all policies

    def handle_all(self, events: Sequence[Event], now_ns: int) -> list[Decision]:
        """Events in, decisions out; see `Policy`."""
        out = self._out = []
        for event in events:
            if isinstance(event, StepCompleted):
                self._completed(event.step_id, now_ns)
            elif isinstance(event, RequestArrived):
                self._arrived(event, now_ns)
        wake_ns = self.expire(now_ns)
        if not self._busy:
            batch = self.next_batch(now_ns)
            if batch.jobs:
                self._start(batch, now_ns)
                wake_ns = self.expire(now_ns)
            elif batch.wake_ns >= 0 and not 0 <= wake_ns <= batch.wake_ns:
                wake_ns = batch.wake_ns
        out.append(Idle(wake_ns))
        return out

    def _arrived(self, event: RequestArrived, now_ns: int) -> None:
        tokens = event.num_tokens
        request = Pending(event.request_id, event.traffic, now_ns, len(tokens))
        if max(tokens) > self.lane.spec.max_tokens:
            self.reject(request, FinishReason.NEVER_FITS, now_ns)
        elif self.splits_lists:
            for item, n in enumerate(tokens):
                if request.alive:
                    self.admit(Job(request, item, (n,)))
        else:
            self.admit(Job(request, 0, tokens))

    def _start(self, batch: Batch, now_ns: int) -> None:
        seqs = [
            SeqSlice(job.request.request_id, job.first + i, n)
            for job in batch.jobs
            for i, n in enumerate(job.num_tokens)
        ]
        self._running, self._started_ns, self._busy = batch.jobs, now_ns, True
        lengths = [seq.num_tokens for seq in seqs]
        if self.lane.padded:
            lengths = [max(lengths)] * len(lengths)
        shape = StepShape(len(seqs), sum(lengths), sum([n * n for n in lengths]), 0, self._threads)
        self._out.append(
            StepScheduled(
                step_id=self._next_step,
                lane=self.lane.spec.name,
                seqs=tuple(seqs),
                shape=shape,
                predicted_ns=0,
                bound=batch.bound,
            )
        )
        self._next_step += 1

    def _completed(self, step_id: int, now_ns: int) -> None:
        jobs, self._running, self._busy = self._running, [], False
        row = 0
        for job in jobs:
            request = job.request
            if request.alive:
                self._out.append(
                    EmbeddingReady(request.request_id, job.first, job.rows, step_id, row)
                )
                request.left -= job.rows
                if not request.left:
                    request.alive = False
                    self._out.append(RequestFinished(request.request_id, FinishReason.DONE))
            row += job.rows
        self.learn(jobs, self._started_ns, now_ns)


def take_rows(queue: deque[Job], max_rows: int) -> Batch:
    """The jobs at the front of a queue that fit into ``max_rows``; a larger one goes alone."""
    batch, rows = Batch(), 0
    while queue:
        job = queue[0]
        if not job.request.alive:
            queue.popleft()
            continue
        if batch.jobs and rows + job.rows > max_rows:
            batch.bound = BoundBy.SEQS
            break
        batch.jobs.append(queue.popleft())
        rows += job.rows
    return batch
