"""A request inside the core, from arrival to its one end."""

from __future__ import annotations

from collections import deque

from runtime_py.batching.types import TrafficClass


class Request:
    """The items of one `RequestArrived` and how far they have come.

    An item is *waiting* (not yet in a step, or given back by one), *in flight* or *done*.
    Waiting items leave in ascending order, given-back ones first.

    Attributes:
        lane: index of its lane.
        seq: arrival order within the core; breaks every tie.
        tenant: whom its device time is charged to.
        due_ns: when the scheduler wants it finished (never sheds).
        rank_ns: its place in the latency class: its due time, and with a deadline that the
            work ahead puts in doubt the time that it needs alone beyond it. Earliest deadline
            first is best as long as all can be kept; when not, the same device time keeps
            more of the short ones.
        deadline_ns: when its owner stops caring, -1 = never (sheds).
        alive: False once its `RequestFinished` is out.
        num_waiting, waiting_tokens, waiting_sq: totals over the waiting items: their number,
            their tokens, and the sum of their squared lengths.
        num_done: items whose result was delivered.
        started: at least one item has been in a step.
        alarmed: it has an entry in the heap of alarms.
        queued: it has an entry in the heap of its class.
    """

    __slots__ = (
        "_cursor",
        "_returned",
        "alarmed",
        "alive",
        "arrival_ns",
        "deadline_ns",
        "due_ns",
        "lane",
        "num_done",
        "num_tokens",
        "num_waiting",
        "queued",
        "rank_ns",
        "request_id",
        "seq",
        "started",
        "tenant",
        "traffic",
        "waiting_sq",
        "waiting_tokens",
    )

    def __init__(
        self,
        request_id: int,
        num_tokens: tuple[int, ...],
        traffic: TrafficClass,
        arrival_ns: int,
        deadline_ns: int,
        seq: int,
        tenant: str = "",
    ) -> None:
        self.request_id = request_id
        self.num_tokens = num_tokens
        self.traffic = traffic
        self.arrival_ns = arrival_ns
        self.deadline_ns = deadline_ns
        self.due_ns = arrival_ns
        self.rank_ns = arrival_ns
        self.seq = seq
        self.tenant = tenant
        self.alarmed = False
        self.alive = True
        self.queued = False
        self.started = False
        self.lane = 0
        self.num_done = 0
        self.num_waiting = len(num_tokens)
        self.waiting_tokens = sum(num_tokens)
        self.waiting_sq = sum([n * n for n in num_tokens])
        self._cursor = 0
        self._returned: deque[int] = deque()

    @property
    def complete(self) -> bool:
        return self.num_done == len(self.num_tokens)

    def next_item(self) -> int:
        """The item that `take` hands out next; there is one while `num_waiting` > 0."""
        return self._returned[0] if self._returned else self._cursor

    def take(self) -> int:
        """Move the next waiting item into flight."""
        if self._returned:
            item = self._returned.popleft()
        else:
            item = self._cursor
            self._cursor += 1
        n = self.num_tokens[item]
        self.num_waiting -= 1
        self.waiting_tokens -= n
        self.waiting_sq -= n * n
        self.started = True
        return item

    def give_back(self, items: list[int]) -> None:
        """Items in flight wait again, ahead of the others."""
        for item in items:
            n = self.num_tokens[item]
            self.waiting_tokens += n
            self.waiting_sq += n * n
        self.num_waiting += len(items)
        self._returned = deque(sorted([*self._returned, *items]))
