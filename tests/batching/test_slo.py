"""Targets per request and per model, and the lane that gets the device because of them."""

from __future__ import annotations

import pytest

from runtime_py.batching import (
    BoundBy,
    DeviceSpec,
    FinishReason,
    GenerationArrived,
    LaneSpec,
    RequestArrived,
    SchedulerConfig,
    TrafficClass,
    Turn,
)
from tests.batching.decoder_world import LANE as DECODER
from tests.batching.decoder_world import DecoderWorld, alone
from tests.batching.world import LANE, MS, World

BULK = TrafficClass.THROUGHPUT


def test_a_request_with_a_tighter_target_goes_first() -> None:
    world = World(config=SchedulerConfig(max_batch_seqs=1))
    world.arrive(10)
    usual, tight, loose = (
        world.arrive(10),
        world.arrive(10, target_ms=5),
        world.arrive(10, target_ms=500),
    )
    world.drain()
    assert [s.seqs[0].request_id for s in world.steps[1:]] == [tight, usual, loose]
    assert set(world.reasons([usual, tight, loose])) == {FinishReason.DONE}


def test_a_target_orders_and_never_sheds() -> None:
    world = World(cost=lambda step: 100 * MS)
    ids = [world.arrive(10, target_ms=1) for _ in range(5)]
    world.drain()
    assert set(world.reasons(ids)) == {FinishReason.DONE}


@pytest.mark.parametrize("crowd", [0, 18])
def test_in_a_crowd_the_shorter_of_two_with_one_deadline_goes_first(crowd: int) -> None:
    world = World(config=SchedulerConfig(max_batch_seqs=1, deadline_margin_percent=0))
    for _ in range(4):
        world.arrive(50)
        world.drain()
    world.arrive(10)
    for _ in range(crowd):
        world.arrive(40, deadline_ms=60)
    long, short = world.arrive(100, deadline_ms=80), world.arrive(10, deadline_ms=80)
    world.drain()
    order = [s.seqs[0].request_id for s in world.steps]
    if crowd:
        assert short in order
        assert long not in order or order.index(short) < order.index(long)
    else:
        assert order.index(long) < order.index(short)
        assert set(world.reasons([long, short])) == {FinishReason.DONE}


def test_steps_are_short_where_targets_are() -> None:
    """A quarter of the tightest target, so that a newcomer never waits for long."""
    longest = {}
    for target in (400, 40):
        world = World(config=SchedulerConfig(latency_target_ms=target))
        for _ in range(5):
            world.arrive(20)
            world.drain()
        before = len(world.steps)
        world.arrive_together(*[10] * 60)
        world.drain()
        longest[target] = max(s.predicted_ns for s in world.steps[before:])
    assert longest[400] > 40 * MS  # up to the step target
    assert 8 * MS <= longest[40] <= 11 * MS  # 2% overhead of 0.2 ms, or 40 / 4


def test_steps_stay_long_for_bulk_work_without_company() -> None:
    world = World()
    for _ in range(5):
        world.arrive(20, traffic=BULK)
        world.drain()
    world.arrive_together(*[10] * 200, traffic=BULK)
    world.drain()
    assert max(s.predicted_ns for s in world.steps) > 40 * MS


def test_every_lane_has_its_own_knobs() -> None:
    lanes = [
        LaneSpec("a", 512, 64, config=SchedulerConfig(max_batch_seqs=2)),
        LaneSpec("b", 512, 64),
    ]
    world = World(lanes=lanes, config=SchedulerConfig(max_batch_seqs=5))
    for lane in ("a", "b"):
        for _ in range(20):
            world.arrive(5, lane=lane)
    world.drain()
    most = {name: max(s.shape.num_seqs for s in world.steps if s.lane == name) for name in "ab"}
    assert most == {"a": 2, "b": 5}


def test_lanes_that_are_all_late_share_by_weight() -> None:
    lanes = [LaneSpec("a", 64, 8, weight=1), LaneSpec("b", 64, 8, weight=3)]
    world = World(lanes=lanes)
    for _ in range(600):
        world.arrive(20, lane="a")
        world.arrive(20, lane="b")
    world.run_until(200 * MS)
    first = len(world.steps)
    world.run_until(1200 * MS)
    time = {"a": 0, "b": 0}
    for step in world.steps[first:]:
        time[step.lane] += world.cost(step)
    assert time["b"] / time["a"] == pytest.approx(3, rel=0.15)
    assert {s.why.turn for s in world.steps[first:]} == {Turn.LATE}


def test_weights_count_device_time_not_requests() -> None:
    """Ten times longer texts in one lane buy it nothing."""
    lanes = [LaneSpec("a", 256, 8), LaneSpec("b", 256, 8)]
    world = World(lanes=lanes, device=DeviceSpec(2, 2))
    for _ in range(400):
        world.arrive(*[10] * 4, traffic=BULK, lane="a")
        world.arrive(100, traffic=BULK, lane="b")
    world.run_until(800 * MS)
    time = {"a": 0, "b": 0}
    for step in world.steps:
        time[step.lane] += world.cost(step) * step.shape.threads
    assert time["b"] / time["a"] == pytest.approx(1, rel=0.1)


def test_the_tightest_tpot_target_of_a_stream_bounds_the_step() -> None:
    world = DecoderWorld(blocks=2400, max_tokens=4096, config=SchedulerConfig(tpot_target_ms=80))
    slow = [world.generate([i, 1], 120) for i in range(3)]
    world.run_until(300 * MS)
    world.generate(range(1500), 2)
    world.run_until(700 * MS)
    chunks = [s.shape.num_tokens for s in world.steps[-3:]]
    quick = world.generate([9, 9], 100, tpot_ms=20)
    world.run_until(world.now + 300 * MS)
    assert max(world.gaps_ms(quick)) <= 25
    narrow = [s for s in world.steps if any(q[0] == quick and q.context_len > 1 for q in s.seqs)]
    bound = [s for s in narrow if s.bound is BoundBy.TPOT and len(s.seqs) > 4]
    assert bound
    assert all(s.why.binding == quick and s.why.limit == 20 * MS for s in bound)
    assert max(s.shape.num_tokens for s in bound) < min(chunks)
    world.drain()
    for i, request in enumerate(slow):
        assert world.tokens[request, 0] == alone([i, 1], 120)


def test_targets_of_generations_order_the_queue() -> None:
    world = DecoderWorld(max_seqs=1)
    world.generate([1], 5)
    usual, tight = world.generate([2], 2), world.generate([3], 2, ttft_ms=10)
    world.drain()
    assert world.times[tight, 0][0] < world.times[usual, 0][0]


def test_defaults_are_the_lanes() -> None:
    assert RequestArrived(0, LANE, (1,)).latency_target_ns == -1
    event = GenerationArrived(0, DECODER, (1,), 1)
    assert (event.ttft_target_ns, event.tpot_target_ns) == (-1, -1)
