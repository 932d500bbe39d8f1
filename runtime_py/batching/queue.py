"""The waiting requests of one lane: two classes, their limits, and their alarms.

Everything is O(log n): heaps with lazy deletion (an entry whose request ended or
changed class is dropped when it surfaces, and the heap is rebuilt when such entries
outnumber the live ones).
"""

from __future__ import annotations

import heapq

from runtime_py.batching.config import QueuePolicy, SchedulerConfig
from runtime_py.batching.request import Request
from runtime_py.batching.tenants import TenantOrder
from runtime_py.batching.types import MAX_NS, NS_PER_MS, TrafficClass

_Entry = tuple[int, int, Request]  # (key, seq, request); seq is unique, requests never compare


class ClassQueue:
    """Requests of one class with waiting items, by tenant and then by (key, arrival).

    The key is the rank in the latency class, the arrival in the throughput class.

    Attributes:
        policy: its limits.
        tenants: whose turn it is.
        num_seqs, num_tokens, sum_len_sq: totals over the waiting items.
        skips: steps since this class last had a sequence in one, while it had work.
        served_ns: when that was, or when work arrived in an empty queue.
    """

    def __init__(self, traffic: TrafficClass, policy: QueuePolicy, lead_ns: int) -> None:
        self.traffic = traffic
        self.policy = policy
        self.tenants = TenantOrder(traffic, lead_ns)
        self.num_seqs = 0
        self.num_tokens = 0
        self.sum_len_sq = 0
        self.skips = 0
        self.served_ns = 0
        self._live = 0

    def __len__(self) -> int:
        """Requests with waiting items."""
        return self._live

    def push(self, request: Request, now_ns: int) -> None:
        """Queue the waiting items of a request that has none queued."""
        if not self._live:
            self.skips = 0
            self.served_ns = now_ns
        self._count(request, 1)
        self._live += 1
        request.queued = True
        latency = self.traffic is TrafficClass.LATENCY
        self.tenants.push(request.rank_ns if latency else request.arrival_ns, request)

    def head(self) -> Request | None:
        """The request whose turn it is."""
        return self.tenants.head()

    def first_rank_ns(self) -> int:
        """The lowest rank of all that wait in the latency class, or `MAX_NS`; O(tenants)."""
        rank_ns = MAX_NS
        for tenant in self.tenants.active.values():
            rank_ns = min(rank_ns, tenant.head()[0])
        return rank_ns

    def take(self, request: Request, charge_ns: int) -> int:
        """Take the next item of ``request``, which is the head.

        Args:
            charge_ns: device time that its tenant is charged for it.
        """
        item = request.take()
        n = request.num_tokens[item]
        self.num_seqs -= 1
        self.num_tokens -= n
        self.sum_len_sq -= n * n
        tenant = self.tenants.of(request)
        tenant.served_ns += charge_ns
        if not request.num_waiting:
            request.queued = False
            self._live -= 1
            tenant.pop()
            self.tenants.removed(tenant)
        return item

    def restore(self, request: Request, items: list[int], now_ns: int) -> None:
        """Items of a living request that left in a step wait again, ahead of its others."""
        if not request.queued:
            request.give_back(items)
            self.push(request, now_ns)
            return
        self._count(request, -1)
        request.give_back(items)
        self._count(request, 1)

    def remove(self, request: Request) -> None:
        """Forget the waiting items of a queued request."""
        tenant = self.tenants.of(request)
        self._count(request, -1)
        self._live -= 1
        request.queued = False
        self.tenants.removed(tenant)
        tenant.shrink()

    def has_room(self, num_seqs: int) -> bool:
        return self.num_seqs + num_seqs <= self.policy.max_queue_size

    def _count(self, request: Request, sign: int) -> None:
        self.num_seqs += sign * request.num_waiting
        self.num_tokens += sign * request.waiting_tokens
        self.sum_len_sq += sign * request.waiting_sq


class RequestQueue:
    """Both classes of one lane, and the times at which a request needs another look."""

    def __init__(self, config: SchedulerConfig) -> None:
        lead_ns = config.tenant_lead_ms * NS_PER_MS
        self.latency = ClassQueue(TrafficClass.LATENCY, config.latency, lead_ns)
        self.throughput = ClassQueue(TrafficClass.THROUGHPUT, config.throughput, lead_ns)
        self._alarms: list[_Entry] = []
        self._num_alarmed = 0

    @property
    def num_seqs(self) -> int:
        return self.latency.num_seqs + self.throughput.num_seqs

    @property
    def num_tokens(self) -> int:
        return self.latency.num_tokens + self.throughput.num_tokens

    @property
    def sum_len_sq(self) -> int:
        return self.latency.sum_len_sq + self.throughput.sum_len_sq

    def of(self, traffic: TrafficClass) -> ClassQueue:
        return self.latency if traffic is TrafficClass.LATENCY else self.throughput

    def push(self, request: Request, now_ns: int) -> None:
        self.of(request.traffic).push(request, now_ns)

    def remove(self, request: Request) -> None:
        """Forget a request that has ended, wherever it is."""
        if request.queued:
            self.of(request.traffic).remove(request)
        if request.alarmed:
            request.alarmed = False
            self._num_alarmed -= 1
            if len(self._alarms) > 64 and len(self._alarms) > 2 * self._num_alarmed:
                self._alarms = [e for e in self._alarms if e[2].alarmed]
                heapq.heapify(self._alarms)

    def give_back(self, request: Request, items: list[int], now_ns: int) -> None:
        """Items of a step that did not run wait again, ahead of the request's others."""
        self.of(request.traffic).restore(request, items, now_ns)

    def demote(self, request: Request, now_ns: int) -> None:
        """Move a queued latency request to the throughput class."""
        self.latency.remove(request)
        request.traffic = TrafficClass.THROUGHPUT
        self.throughput.push(request, now_ns)

    def timeout_ns(self, request: Request) -> int:
        """When ``request`` has waited too long for its first step, or -1."""
        timeout = self.of(request.traffic).policy.timeout_ms
        if request.started or not timeout:
            return -1
        return request.arrival_ns + timeout * NS_PER_MS

    def set_alarm(self, request: Request, at_ns: int) -> None:
        """Look at a living request without an alarm again at ``at_ns``."""
        request.alarmed = True
        self._num_alarmed += 1
        heapq.heappush(self._alarms, (at_ns, request.seq, request))

    def next_alarm(self) -> int:
        """When the next alarm rings, or -1."""
        alarms = self._alarms
        while alarms and not alarms[0][2].alarmed:
            heapq.heappop(alarms)
        return alarms[0][0] if alarms else -1

    def pop_alarm(self, now_ns: int) -> Request | None:
        """A living request whose alarm has rung by ``now_ns``; it then has none."""
        at_ns = self.next_alarm()
        if not 0 <= at_ns <= now_ns:
            return None
        request = heapq.heappop(self._alarms)[2]
        request.alarmed = False
        self._num_alarmed -= 1
        return request
