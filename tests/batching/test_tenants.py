"""Tenants of one class: fair shares of device time, urgency among equals, little cost."""

from __future__ import annotations

import random

import pytest

from runtime_py.batching import (
    QueuePolicy,
    TrafficClass,
)
from runtime_py.batching.queue import ClassQueue
from runtime_py.batching.request import Request


class Model:
    """The same order by looking at everyone: O(tenants) a turn."""

    def __init__(self, lead: int) -> None:
        self.lead, self.floor = lead, 0
        self.waiting: list[Request] = []
        self.served: dict[str, int] = {}

    def push(self, r: Request) -> None:
        names = {w.tenant for w in self.waiting}
        if names:
            self.floor = min(self.served[n] for n in names)
        if r.tenant not in names:
            self.served[r.tenant] = max(self.served.get(r.tenant, 0), self.floor)
        self.waiting.append(r)

    def head(self) -> Request | None:
        if not self.waiting:
            return None
        least = min(self.served[r.tenant] for r in self.waiting)
        able = [r for r in self.waiting if self.served[r.tenant] <= least + self.lead]
        return min(able, key=lambda r: (r.rank_ns, r.seq))

    def remove(self, r: Request) -> None:
        names = {w.tenant for w in self.waiting}
        self.floor = max(self.floor, min(self.served[n] for n in names))
        self.waiting.remove(r)
        if not self.waiting:
            self.floor = max(self.floor, self.served[r.tenant])
            self.served.clear()


@pytest.mark.parametrize("lead", [0, 5, 100])
@pytest.mark.parametrize("tenants", [1, 2, 3, 40])
def test_random_operations_match_a_plain_model(lead: int, tenants: int) -> None:
    rng = random.Random(lead + tenants)
    queue, model = ClassQueue(TrafficClass.LATENCY, QueuePolicy(), lead), Model(lead)
    for seq in range(6000):
        dice = rng.random()
        growing = seq // 500 % 2 == 0
        if dice < (0.5 if growing else 0.3):
            r = Request(seq, (1,), TrafficClass.LATENCY, seq, -1, seq, str(rng.randrange(tenants)))
            r.rank_ns = rng.randrange(50)
            queue.push(r, seq)
            model.push(r)
        elif dice < 0.6 and model.waiting:
            r = rng.choice(model.waiting)
            queue.remove(r)
            model.remove(r)
        elif model.waiting:
            head = model.head()
            assert head is not None
            assert queue.head() is head
            charge = rng.randrange(10)
            queue.take(head, charge)
            model.served[head.tenant] += charge
            model.remove(head)
        if rng.random() < 0.1 and model.served:
            name = rng.choice(sorted(model.served))
            queue.tenants.charge(name, 3)
            model.served[name] += 3
        assert len(queue) == len(model.waiting)
        assert queue.head() is model.head()
        order = queue.tenants
        assert len(order._ready) + len(order._parked) <= 130 + 10 * tenants
