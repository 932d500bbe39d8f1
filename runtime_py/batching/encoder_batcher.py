"""Fills one encoder step: whole sequences, packed, until a budget is spent.

The order: a turn of the throughput class when it has waited too long; the latency
class, earliest due time first; then throughput sequences in what is left. A step
that carries latency sequences is lengthened by bulk work only a little, because
packing more tokens into a step hardly makes a token cheaper, while every sequence
in it waits for its end.
"""

from __future__ import annotations

from typing import NamedTuple

from runtime_py.batching.admission import Admission
from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.cost_model import CostLine
from runtime_py.batching.queue import ClassQueue, RequestQueue
from runtime_py.batching.request import Request
from runtime_py.batching.types import MAX_NS, NS_PER_MS, BoundBy, StepShape, TrafficClass

_NEVER = 2 * MAX_NS


class Batch(NamedTuple):
    """The members of a step, in row order."""

    members: list[tuple[Request, int]]
    shape: StepShape
    bound: BoundBy


class _Fill:
    """A batch while it grows."""

    def __init__(self, line: CostLine, admission: Admission, now_ns: int) -> None:
        self.members: list[tuple[Request, int]] = []
        self.num_tokens = 0
        self.sum_len_sq = 0
        self.cost_ns = line.fixed
        self.deadline_ns = _NEVER  # the earliest of a member
        self.due_ns = _NEVER  # the earliest of a latency member
        self._line = line
        self._now_ns = now_ns
        self._max_tokens = admission.max_tokens
        self._max_seqs = admission.max_seqs

    def take_from(self, queue: ClassQueue, limit_ns: float) -> BoundBy:
        """Add items in the queue's order while the step stays within ``limit_ns``."""
        _, seq_ns, token_ns, pair_ns, _ = self._line
        members = self.members
        bound = BoundBy.ALL
        while (request := queue.head()) is not None:
            n = request.num_tokens[request.next_item()]
            cost_ns = self.cost_ns + seq_ns + token_ns * n + pair_ns * (n * n)
            deadline_ns = self.deadline_ns
            if 0 <= request.deadline_ns < deadline_ns:
                deadline_ns = request.deadline_ns
            if members:
                if len(members) >= self._max_seqs:
                    bound = BoundBy.SEQS
                elif self.num_tokens + n > self._max_tokens:
                    bound = BoundBy.TOKENS
                elif cost_ns > deadline_ns - self._now_ns:
                    bound = BoundBy.DEADLINE
                elif cost_ns > limit_ns:
                    bound = BoundBy.TIME
                if bound is not BoundBy.ALL:
                    break
            members.append((request, queue.take(request)))
            self.num_tokens += n
            self.sum_len_sq += n * n
            self.cost_ns = cost_ns
            self.deadline_ns = deadline_ns
            if queue.traffic is TrafficClass.LATENCY and request.due_ns < self.due_ns:
                self.due_ns = request.due_ns
        return bound


class EncoderBatcher:
    """Builds the next batch of one lane."""

    def __init__(self, config: SchedulerConfig, admission: Admission) -> None:
        self._admission = admission
        self._fill_percent = config.fill_percent
        self._max_wait_ns = config.throughput_max_wait_ms * NS_PER_MS
        self._max_skips = config.throughput_max_skips
        self._share_percent = config.throughput_share_percent

    def overdue(self, queue: RequestQueue, now_ns: int) -> bool:
        """The throughput class has waited for its turn long enough."""
        bulk = queue.throughput
        return len(bulk) > 0 and (
            now_ns - bulk.served_ns >= self._max_wait_ns or bulk.skips >= self._max_skips
        )

    def fill(
        self, queue: RequestQueue, line: CostLine, threads: int, limit_ns: float, now_ns: int
    ) -> Batch:
        """Take the members of the next step out of ``queue``, which is not empty.

        Args:
            line: the cost model at this step's thread count.
            threads: that count.
            limit_ns: the predicted time that the step may take; its first sequence
                runs whatever it takes.
            now_ns: the present.
        """
        fill = _Fill(line, self._admission, now_ns)
        before = (queue.latency.num_seqs, queue.throughput.num_seqs)
        bound = BoundBy.ALL
        if self.overdue(queue, now_ns) and len(queue.latency):
            bound = fill.take_from(queue.throughput, limit_ns * self._share_percent / 100)
        if bound in (BoundBy.ALL, BoundBy.TIME):
            bound = fill.take_from(queue.latency, limit_ns)
        if bound is BoundBy.ALL:
            if fill.members:
                longer_ns = fill.cost_ns * (100 + self._fill_percent) / 100
                limit_ns = min(limit_ns, longer_ns, float(fill.due_ns - now_ns))
            bound = fill.take_from(queue.throughput, limit_ns)
        for of_class in (queue.latency, queue.throughput):
            if of_class.num_seqs < before[of_class.traffic]:
                of_class.skips = 0
                of_class.served_ns = now_ns
            elif len(of_class):
                of_class.skips += 1
        shape = StepShape(len(fill.members), fill.num_tokens, fill.sum_len_sq, 0, threads)
        return Batch(fill.members, shape, bound)
