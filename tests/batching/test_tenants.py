"""Tenants of one class: fair shares of device time, urgency among equals, little cost."""

from __future__ import annotations

import random

import pytest

from runtime_py.batching import FinishReason, QueuePolicy, SchedulerConfig, TrafficClass, replay
from runtime_py.batching.queue import ClassQueue
from runtime_py.batching.request import Request
from tests.batching.decoder_world import DecoderWorld
from tests.batching.world import MS, World


class Model:
    """The same order by looking at everyone: O(tenants) a turn."""

    def __init__(self, lead: int) -> None:
        self.lead, self.virtual = lead, lead
        self.waiting: list[Request] = []
        self.served: dict[str, int] = {}

    def push(self, r: Request) -> None:
        names = {w.tenant for w in self.waiting}
        if names:
            self.virtual = max(self.virtual, min(self.served[n] for n in names))
        if r.tenant not in names:
            self.served[r.tenant] = max(self.served.get(r.tenant, 0), self.virtual - self.lead)
        self.waiting.append(r)

    def head(self) -> Request | None:
        if not self.waiting:
            return None
        least = min(self.served[r.tenant] for r in self.waiting)
        self.virtual = max(self.virtual, least)
        able = [r for r in self.waiting if self.served[r.tenant] <= least + self.lead]
        return min(able, key=lambda r: (r.rank_ns, r.seq))

    def remove(self, r: Request) -> None:
        self.waiting.remove(r)
        if not self.waiting:
            self.virtual = max(self.virtual, self.served[r.tenant])
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


def test_C13_a_flooding_tenant_delays_nobody_else_for_long() -> None:
    world = World()
    for _ in range(2000):
        world.arrive(20, tenant="flood")
    rng, quiet = random.Random(1), []
    for _ in range(60):
        world.run_until(world.now + int(rng.expovariate(1 / 20) * MS))
        quiet.append(world.arrive(10, tenant=f"quiet {rng.randrange(3)}"))
    world.run_until(world.now + 200 * MS)
    assert set(world.reasons(quiet)) == {FinishReason.DONE}
    # the step that it finds running, its own, and what the allowance costs at the start
    assert max(world.latency_ms(i) for i in quiet[10:]) < 50
    world.drain()


@pytest.mark.parametrize("traffic", list(TrafficClass))
def test_flooding_tenants_share_device_time_not_requests(traffic: TrafficClass) -> None:
    world = World(config=SchedulerConfig(throughput_max_wait_ms=10**6))
    for _ in range(600):
        for tenant, tokens in (("a", 5), ("b", 20), ("c", 80)):
            world.arrive(tokens, tenant=tenant, traffic=traffic)
    world.run_until(700 * MS)
    ran = {"a": 0, "b": 0, "c": 0}
    for step in world.steps:
        for s in step.seqs:
            ran[world.arrived[s.request_id].tenant] += s.num_tokens
    assert max(ran.values()) < 1.15 * min(ran.values()) + 1000


def test_nobody_saves_up_device_time_while_away() -> None:
    world = World()
    for _ in range(600):
        world.arrive(20, tenant="a")
    world.run_until(600 * MS)
    before = len(world.steps)
    for _ in range(300):
        world.arrive(20, tenant="b")
    world.run_until(world.now + 600 * MS)
    count = {"a": 0, "b": 0}
    for step in world.steps[before:]:
        for s in step.seqs:
            count[world.arrived[s.request_id].tenant] += 1
    assert 0.6 < count["a"] / count["b"] < 1.5


def test_urgency_decides_among_tenants_within_the_allowance() -> None:
    world = World(config=SchedulerConfig(max_batch_seqs=1, tenant_lead_ms=1000))
    world.arrive(10, tenant="x")
    late, soon = (
        world.arrive(10, tenant="a", deadline_ms=300),
        world.arrive(10, tenant="b", deadline_ms=60),
    )
    later = world.arrive(10, tenant="b", deadline_ms=100)
    world.drain()
    assert [s.seqs[0].request_id for s in world.steps[1:]] == [soon, later, late]


def test_tenants_of_a_decoder_are_charged_for_prompts_and_tokens() -> None:
    lines: list[str] = []
    world = DecoderWorld(blocks=400, max_seqs=4, lines=lines)
    for i in range(60):
        world.generate([i, 1, 2], 90, tenant="flood")
    world.run_until(400 * MS)
    quiet = [world.generate([i, 2], 4, tenant="quiet") for i in range(8)]
    while not all(q in world.finished for q in quiet):
        world.advance()
    flood = sum(i not in quiet for i in world.finished)
    assert flood < 20  # of 60 that were there before
    for i in list(world.arrived):
        world.abort(i)
    world.drain()
    assert replay(lines) == world.recorder.digest


def test_a_demoted_request_keeps_its_tenant() -> None:
    queue = ClassQueue(TrafficClass.LATENCY, QueuePolicy(), 0)
    r = Request(0, (1,), TrafficClass.LATENCY, 0, -1, 0, "t")
    queue.push(r, 0)
    assert queue.first_rank_ns() == 0
    queue.remove(r)
    assert queue.head() is None
    assert not queue.tenants.active
