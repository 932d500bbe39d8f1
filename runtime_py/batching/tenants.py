"""Which tenant of a traffic class has the next turn.

Fair queueing by device time: every tenant has an account of the time it was given, and
one that is further ahead of the least served tenant in the queue than an allowance
waits until the others have caught up. Among those within the allowance the most urgent
request goes first, so with little contention the order is that of the requests alone.
An account starts one allowance below the least served one's, so a newcomer goes before
those who have been at it for long, but nobody saves up more than that while away: the
virtual time of start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996). Counting
what was given instead of asking for weights in advance is the idea of the virtual token
counter (Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024).

With T tenants in the queue a turn costs O(log T), and nothing when there is only one.
"""

from __future__ import annotations

import heapq

from runtime_py.batching.request import Request
from runtime_py.batching.types import TrafficClass

_Entry = tuple[int, int, Request]  # (key, seq, request); seq is unique, requests never compare
_SMALL = 64  # heaps of lazily deleted entries are rebuilt only above this size


class Tenant:
    """One tenant's requests of one class, by (key, arrival).

    Attributes:
        name: who it is.
        order: breaks ties: ascending in order of first appearance.
        live: its requests with waiting items.
        served_ns: its account.
    """

    __slots__ = ("_heap", "_traffic", "listed", "live", "name", "order", "served_ns")

    def __init__(self, name: str, order: int, traffic: TrafficClass) -> None:
        self.name = name
        self.order = order
        self.live = 0
        self.served_ns = 0
        self.listed = False  # it has an entry in the heap of accounts
        self._traffic = traffic
        self._heap: list[_Entry] = []

    def push(self, key: int, request: Request) -> None:
        """Add a queued request."""
        heapq.heappush(self._heap, (key, request.seq, request))

    def head(self) -> _Entry:
        """The entry whose turn it is; there is one while `live` > 0."""
        heap = self._heap
        while True:
            entry = heap[0]
            if entry[2].queued and entry[2].traffic is self._traffic:
                return entry
            heapq.heappop(heap)

    def pop(self) -> None:
        """Drop the head, all of whose items have left."""
        heapq.heappop(self._heap)

    def shrink(self) -> None:
        """Rebuild the heap when entries of removed requests outnumber the living."""
        if len(self._heap) > _SMALL and len(self._heap) > 2 * self.live:
            self._heap = [e for e in self._heap if e[2].queued and e[2].traffic is self._traffic]
            heapq.heapify(self._heap)


class TenantOrder:
    """The tenants of one class, and whose turn it is.

    Attributes:
        active: those with waiting requests, by name.
    """

    def __init__(self, traffic: TrafficClass, lead_ns: int) -> None:
        self.active: dict[str, Tenant] = {}
        self._traffic = traffic
        self._lead_ns = lead_ns
        self._tenants: dict[str, Tenant] = {}
        self._sole: Tenant | None = None
        self._num_seen = 0
        self._virtual_ns = lead_ns  # the highest that the least served account has been
        # Entries of these heaps are checked when they surface: the account or the head they
        # were made for may be another by then. Accounts only grow.
        self._accounts: list[tuple[int, int, Tenant]] = []
        self._ready: list[tuple[int, int, int, Tenant]] = []
        self._parked: list[tuple[int, int, Tenant]] = []

    def of(self, request: Request) -> Tenant:
        """The tenant of a queued request."""
        return self._sole or self.active[request.tenant]

    def charge(self, name: str, ns: int) -> None:
        """Device time was given to a tenant. Only of those in this queue is it remembered,
        and of those that left it before the others caught up."""
        tenant = self._tenants.get(name)
        if tenant is not None:
            tenant.served_ns += ns

    def push(self, key: int, request: Request) -> None:
        """A request waits."""
        name = request.tenant
        tenant = self.active.get(name) or self._enter(name)
        tenant.live += 1
        tenant.push(key, request)
        if self._sole is None and tenant.head()[2] is request:
            heapq.heappush(self._ready, (key, request.seq, tenant.order, tenant))

    def removed(self, tenant: Tenant) -> None:
        """A request of ``tenant`` waits no more."""
        tenant.live -= 1
        if not tenant.live:
            self._leave(tenant)
        elif self._sole is None:
            key, seq, _ = tenant.head()
            heapq.heappush(self._ready, (key, seq, tenant.order, tenant))
            if len(self._ready) > _SMALL + 4 * len(self.active):
                self._rebuild()

    def head(self) -> Request | None:
        """The request whose turn it is."""
        if self._sole is not None:
            return self._sole.head()[2]
        if not self.active:
            return None
        limit_ns = self._least() + self._lead_ns
        ready, parked = self._ready, self._parked
        while parked and parked[0][0] <= limit_ns:
            tenant = heapq.heappop(parked)[2]
            if tenant.live:
                key, seq, _ = tenant.head()
                heapq.heappush(ready, (key, seq, tenant.order, tenant))
        while True:
            key, seq, order, tenant = ready[0]
            entry = tenant.head() if tenant.live else None
            if entry is None or entry[0] != key or entry[1] != seq:
                heapq.heappop(ready)
            elif tenant.served_ns > limit_ns:
                heapq.heappop(ready)
                heapq.heappush(parked, (tenant.served_ns, order, tenant))
            else:
                return entry[2]

    def _least(self) -> int:
        """The account of the least served active tenant."""
        accounts = self._accounts
        while True:
            served_ns, order, tenant = accounts[0]
            if not tenant.live:
                tenant.listed = False
                heapq.heappop(accounts)
            elif tenant.served_ns > served_ns:
                heapq.heapreplace(accounts, (tenant.served_ns, order, tenant))
            else:
                self._virtual_ns = max(self._virtual_ns, served_ns)
                return served_ns

    def _enter(self, name: str) -> Tenant:
        tenant = self._tenants.get(name)
        if tenant is None:
            tenant = Tenant(name, self._num_seen, self._traffic)
            self._num_seen += 1
            self._tenants[name] = tenant
        if self._sole is not None:
            self._virtual_ns = max(self._virtual_ns, self._sole.served_ns)
        elif self.active:
            self._least()
        tenant.served_ns = max(tenant.served_ns, self._virtual_ns - self._lead_ns)
        self.active[name] = tenant
        if len(self.active) == 1:
            self._sole = tenant
        elif self._sole is not None:
            self._sole = None
            self._rebuild()
        self._list(tenant)
        return tenant

    def _leave(self, tenant: Tenant) -> None:
        del self.active[tenant.name]
        if len(self.active) == 1:
            self._sole = next(iter(self.active.values()))
            for _, _, listed in self._accounts:
                listed.listed = False
            self._accounts, self._ready, self._parked = [], [], []
        elif not self.active:
            # The queue is empty: nobody was kept waiting, so nobody owes anything
            self._virtual_ns = max(self._virtual_ns, tenant.served_ns)
            self._sole = None
            self._tenants.clear()
        if len(self._tenants) > _SMALL + 2 * len(self.active):
            start_ns = self._virtual_ns - self._lead_ns
            self._tenants = {
                name: t for name, t in self._tenants.items() if t.live or t.served_ns > start_ns
            }

    def _list(self, tenant: Tenant) -> None:
        if self._sole is None and not tenant.listed:
            tenant.listed = True
            heapq.heappush(self._accounts, (tenant.served_ns, tenant.order, tenant))

    def _rebuild(self) -> None:
        """Make the heaps anew from the active tenants; a newcomer has no request yet."""
        self._ready, self._parked = [], []
        for tenant in self.active.values():
            self._list(tenant)
            if tenant.live:
                key, seq, _ = tenant.head()
                heapq.heappush(self._ready, (key, seq, tenant.order, tenant))
