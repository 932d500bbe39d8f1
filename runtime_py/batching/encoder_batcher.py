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
_MOST_CHARGE_NS = 10.0**12  # keeps accounts exact whatever a profile claims


class Batch(NamedTuple):
    """The members of a step, in row order, and what made them so; see `Why`.

    Attributes:
        due_ns: the earliest of a latency member, or -1.
    """

    members: list[tuple[Request, int]]
    shape: StepShape
    bound: BoundBy
    overdue: bool
    blocked: int
    binding: int
    limit: int
    due_ns: int


def retry_batch(member: tuple[Request, int], threads: int) -> Batch:
    """A sequence of a failed step, alone."""
    request, item = member
    n = request.num_tokens[item]
    due_ns = request.due_ns if request.traffic is TrafficClass.LATENCY else -1
    shape = StepShape(1, n, n * n, 0, threads)
    return Batch([member], shape, BoundBy.RETRY, False, -1, request.request_id, 1, due_ns)


class _Fill:
    """A batch while it grows."""

    def __init__(self, line: CostLine, admission: Admission, margin: float, now_ns: int) -> None:
        self.members: list[tuple[Request, int]] = []
        self.num_tokens = 0
        self.sum_len_sq = 0
        self.cost_ns = line.fixed
        self.deadline_ns = _NEVER  # the earliest of a member
        self.deadline_of = -1
        self.due_ns = _NEVER  # the earliest of a latency member
        self.due_of = -1
        self.blocked = -1
        self.binding = -1
        self.limit = 0
        self._line = line
        self._caution = 1.0 + margin
        self._now_ns = now_ns
        self._max_tokens = admission.max_tokens
        self._max_seqs = admission.max_seqs

    def take_from(self, queue: ClassQueue, limit_ns: float, binding: int = -1) -> BoundBy:
        """Add items in the queue's order while the step stays within ``limit_ns``.

        Args:
            binding: the member that this limit is for.
        """
        _, seq_ns, token_ns, pair_ns, _ = self._line
        members, now_ns, caution = self.members, self._now_ns, self._caution
        max_tokens, max_seqs = self._max_tokens, self._max_seqs
        latency = queue.traffic is TrafficClass.LATENCY
        bound = BoundBy.ALL
        while (request := queue.head()) is not None:
            n = request.num_tokens[request.next_item()]
            item_ns = seq_ns + token_ns * n + pair_ns * (n * n)
            cost_ns = self.cost_ns + item_ns
            deadline_ns, deadline_of = self.deadline_ns, self.deadline_of
            if 0 <= request.deadline_ns < deadline_ns:
                deadline_ns, deadline_of = request.deadline_ns, request.request_id
            if members:
                limit = 0
                if len(members) >= max_seqs:
                    bound, limit = BoundBy.SEQS, max_seqs
                elif self.num_tokens + n > max_tokens:
                    bound, limit = BoundBy.TOKENS, max_tokens
                elif cost_ns * caution > deadline_ns - now_ns:
                    bound, limit = BoundBy.DEADLINE, max(deadline_ns - now_ns, 0)
                    binding = deadline_of
                elif cost_ns > limit_ns:
                    bound, limit = BoundBy.TIME, int(max(limit_ns, 0.0))
                if bound is not BoundBy.ALL:
                    self.blocked, self.limit, self.binding = request.request_id, limit, binding
                    break
            members.append((request, queue.take(request, int(min(item_ns, _MOST_CHARGE_NS)))))
            self.num_tokens += n
            self.sum_len_sq += n * n
            self.cost_ns = cost_ns
            self.deadline_ns, self.deadline_of = deadline_ns, deadline_of
            if latency and request.due_ns < self.due_ns:
                self.due_ns, self.due_of = request.due_ns, request.request_id
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
        self,
        queue: RequestQueue,
        line: CostLine,
        threads: int,
        limit_ns: float,
        margin: float,
        now_ns: int,
    ) -> Batch:
        """Take the members of the next step out of ``queue``, which is not empty.

        Args:
            line: the cost model at this step's thread count.
            threads: that count.
            limit_ns: the predicted time that the step may take; its first sequence
                runs whatever it takes.
            margin: part of a prediction to keep free before a deadline.
            now_ns: the present.
        """
        fill = _Fill(line, self._admission, margin, now_ns)
        before = (queue.latency.num_seqs, queue.throughput.num_seqs)
        bound = BoundBy.ALL
        overdue = len(queue.latency) > 0 and self.overdue(queue, now_ns)
        if overdue:
            bound = fill.take_from(queue.throughput, limit_ns * self._share_percent / 100)
        if bound in (BoundBy.ALL, BoundBy.TIME):
            bound = fill.take_from(queue.latency, limit_ns)
        if bound is BoundBy.ALL:
            binding = -1
            if fill.members:
                longer_ns = fill.cost_ns * (100 + self._fill_percent) / 100
                limit_ns = min(limit_ns, longer_ns)
                if fill.due_ns - now_ns < limit_ns:
                    limit_ns, binding = float(fill.due_ns - now_ns), fill.due_of
            bound = fill.take_from(queue.throughput, limit_ns, binding)
        if bound is BoundBy.ALL:  # an earlier round's are in it after all
            fill.blocked = fill.binding = -1
            fill.limit = 0
        for of_class in (queue.latency, queue.throughput):
            if of_class.num_seqs < before[of_class.traffic]:
                of_class.skips = 0
                of_class.served_ns = now_ns
            elif len(of_class):
                of_class.skips += 1
        shape = StepShape(len(fill.members), fill.num_tokens, fill.sum_len_sq, 0, threads)
        return Batch(
            fill.members,
            shape,
            bound,
            overdue,
            fill.blocked,
            fill.binding,
            fill.limit,
            fill.due_ns if fill.due_of >= 0 else -1,
        )
