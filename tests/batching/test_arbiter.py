"""Threads and lanes: who gets the device."""

from __future__ import annotations

import pytest

from runtime_py.batching import (
    CostProfile,
    DeviceSpec,
    FinishReason,
    LaneSpec,
    SchedulerConfig,
    TrafficClass,
)
from tests.batching.world import LANE, MS, World, linear_cost

BULK = TrafficClass.THROUGHPUT


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_a_lone_request_gets_every_thread(threads: int) -> None:
    world = World(device=DeviceSpec(threads, threads))
    for _ in range(20):
        world.arrive(100)
        assert world.steps[-1].shape.threads == threads
        world.drain()


def test_a_request_too_small_for_threads_gets_fewer() -> None:
    lanes = [LaneSpec(LANE, 512, 64, profile=CostProfile(thread_ns=5e6, token_ns=1e5))]
    world = World(device=DeviceSpec(4, 4), lanes=lanes)
    world.arrive(3)
    assert world.steps[0].shape.threads == 1


def test_under_load_one_thread_steps_run_side_by_side() -> None:
    world = World(device=DeviceSpec(4, 4))
    for _ in range(400):
        world.arrive(20, traffic=BULK)
    world.run_until(100 * MS)
    assert len(world.running) == 4
    assert {s.shape.threads for s in world.running.values()} == {1}
    world.drain()
    busy = sum(world.cost(s) * s.shape.threads for s in world.steps)
    end = max(world.finished_at.values())
    assert busy / (4 * end) > 0.95  # hardly a thread was ever idle


def test_one_concurrent_step_takes_all_threads() -> None:
    world = World(device=DeviceSpec(3, 1))
    world.arrive_together(*[30] * 100)
    world.drain()
    assert {s.shape.threads for s in world.steps} == {3}


def test_work_of_one_round_is_joined_when_barriers_are_cheap() -> None:
    world = World(device=DeviceSpec(2, 2))
    world.arrive_together(*[20] * 6)
    assert [s.shape.threads for s in world.steps] == [2]
    world.drain()


def test_work_of_one_round_is_split_when_barriers_are_dear() -> None:
    lanes = [LaneSpec(LANE, 512, 64, profile=CostProfile(thread_ns=5e6, token_ns=1e5))]
    world = World(device=DeviceSpec(2, 2), lanes=lanes)
    world.arrive_together(*[20] * 6)
    assert [s.shape.threads for s in world.steps] == [1, 1]
    assert [s.shape.num_seqs for s in world.steps] == [3, 3]
    world.drain()


def test_bulk_lanes_share_device_time_by_weight() -> None:
    lanes = [LaneSpec("a", 100, 8, weight=1), LaneSpec("b", 100, 8, weight=3)]
    world = World(lanes=lanes, config=SchedulerConfig(throughput_max_wait_ms=10**6))
    for _ in range(1500):
        world.arrive(20, traffic=BULK, lane="a")
        world.arrive(20, traffic=BULK, lane="b")
    world.run_until(1000 * MS)
    time = {"a": 0, "b": 0}
    for step in world.steps:
        time[step.lane] += linear_cost(step)
    assert time["b"] / time["a"] == pytest.approx(3, rel=0.1)


def test_an_idle_lane_saves_up_no_claim() -> None:
    lanes = [LaneSpec("a", 100, 8), LaneSpec("b", 100, 8)]
    world = World(lanes=lanes, config=SchedulerConfig(throughput_max_wait_ms=10**6))
    for _ in range(1000):
        world.arrive(20, traffic=BULK, lane="a")
    world.run_until(500 * MS)
    for _ in range(200):
        world.arrive(20, traffic=BULK, lane="b")
    before = len(world.steps)
    world.run_until(600 * MS)
    assert {s.lane for s in world.steps[before + 1 : before + 5]} == {"a", "b"}
    world.drain()


def test_a_latency_lane_goes_before_a_bulk_lane() -> None:
    lanes = [LaneSpec("bulk", 100, 8), LaneSpec("live", 100, 8)]
    world = World(lanes=lanes)
    for _ in range(100):
        world.arrive(20, traffic=BULK, lane="bulk")
    live = world.arrive(20, lane="live")
    world.advance()
    assert world.steps[1].lane == "live"
    world.drain()
    assert world.finished[live].reason is FinishReason.DONE


def test_slack_is_spent_only_when_arrivals_will_make_the_step_larger() -> None:
    lanes = [LaneSpec("bulk", 100, 8), LaneSpec("live", 100, 8)]
    for rate, first in ((0, "live"), (50, "bulk")):
        world = World(lanes=lanes, config=SchedulerConfig(latency_target_ms=500, step_target_ms=20))
        for _ in range(rate):
            world.arrive(2, lane="live")
        world.run_until(100 * MS)
        world.arrive(90, traffic=BULK, lane="bulk")
        world.arrive(90, traffic=BULK, lane="bulk")
        world.arrive(20, lane="live")
        started = len(world.steps)
        world.advance()
        assert world.steps[started].lane == first
        world.drain()


def test_retries_of_a_lane_make_it_urgent() -> None:
    from runtime_py.batching import StepCompleted, StepOutcome, StepScheduled

    failed: list[int] = []

    def outcome(step: StepScheduled) -> StepCompleted | None:
        if step.lane == "a" and not failed:
            failed.append(step.step_id)
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        return None

    lanes = [LaneSpec("a", 100, 8), LaneSpec("b", 100, 8)]
    world = World(lanes=lanes, outcome=outcome)
    world.arrive(20, traffic=BULK, lane="a")
    for _ in range(30):
        world.arrive(20, traffic=BULK, lane="b")
    world.advance()
    assert world.steps[1].lane == "a"
    world.drain()
