"""Random lives of encoder lanes: arrivals, faults, aborts, late completions, in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from runtime_py.batching import (
    DeviceSpec,
    LaneSpec,
    QueuePolicy,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    TrafficClass,
    replay,
)
from tests.batching.machine import LIVES, LifeMachine, configs, targets_ms, tenants, traffics
from tests.batching.world import LANE, MS, World

OTHER = "n/embed"


class Encoders(LifeMachine[World]):
    @initialize(
        config=configs,
        own=st.none() | configs,
        threads=st.integers(1, 4),
        steps=st.integers(1, 4),
        two_lanes=st.booleans(),
    )
    def start(
        self,
        config: SchedulerConfig,
        own: SchedulerConfig | None,
        threads: int,
        steps: int,
        two_lanes: bool,
    ) -> None:
        lanes = [LaneSpec(LANE, 64, 8)]
        if two_lanes:
            lanes.append(LaneSpec(OTHER, 128, 4, weight=3, config=own))
        self.two_lanes = two_lanes
        self.world = World(
            config=config,
            device=DeviceSpec(threads, steps),
            lanes=lanes,
            lines=self.lines,
        )

    @rule(
        lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
        traffic=traffics,
        deadline=st.sampled_from([None, None, 1, 5, 50]),
        target_ms=targets_ms,
        tenant=tenants,
        other=st.booleans(),
    )
    def arrive(
        self,
        lengths: list[int],
        traffic: TrafficClass,
        deadline: int | None,
        target_ms: int,
        tenant: str,
        other: bool,
    ) -> None:
        self.world.arrive(
            *lengths,
            traffic=traffic,
            deadline_ms=deadline,
            target_ms=target_ms,
            tenant=tenant,
            lane=OTHER if other and self.two_lanes else LANE,
        )

    @rule(lengths=st.lists(st.integers(1, 100), min_size=2, max_size=10))
    def burst(self, lengths: list[int]) -> None:
        self.world.arrive_together(*lengths)


Encoders.TestCase.settings = LIVES
TestEncoders = Encoders.TestCase


@pytest.mark.parametrize(("seed", "events"), [(0, 10_000), (1, 3_000)])
def test_ten_thousand_random_events_end_every_request_once(seed: int, events: int) -> None:
    """Conservation, budgets, progress and an equal replay over a long life."""
    rng = random.Random(seed)

    def outcome(step: StepScheduled) -> StepCompleted | None:
        dice = rng.random()
        if dice < 0.03:
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        if dice < 0.06:
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        if dice < 0.10:
            row = rng.randrange(step.shape.num_seqs)
            return StepCompleted(step.step_id, StepOutcome.OK, MS, (row,))
        return None

    lines: list[str] = []
    world = World(
        config=SchedulerConfig(
            throughput_max_wait_ms=50,
            latency=QueuePolicy(max_queue_size=200),
            throughput=QueuePolicy(max_queue_size=200, timeout_ms=500),
        ),
        device=DeviceSpec(2, 2),
        cost=lambda step: 100_000 + 30_000 * step.shape.num_tokens * rng.randrange(1, 4),
        outcome=outcome,
        lines=lines,
    )
    for _ in range(events):
        dice = rng.random()
        if dice < 0.5:
            lengths = [rng.randrange(1, 60) for _ in range(rng.choice([1, 1, 1, 5, 20]))]
            world.arrive(
                *lengths,
                traffic=TrafficClass(rng.randrange(2)),
                deadline_ms=rng.choice([None, None, 2, 10, 100]),
                tenant=rng.choice("abc"),
            )
        elif dice < 0.6:
            world.abort(rng.randrange(len(world.arrived) + 1))
        elif dice < 0.95:
            world.advance()
        else:
            world.run_until(world.now + rng.randrange(20 * MS))
    world.drain()
    assert len(lines) > events
    assert replay(lines) == world.recorder.digest
    kinds = {f.reason.value for f in world.finished.values()}
    assert {"done", "aborted", "deadline", "failed", "non_finite", "overloaded"} <= kinds


@pytest.mark.parametrize("traffic", list(TrafficClass))
def test_equal_requests_run_in_arrival_order(traffic: TrafficClass) -> None:
    rng = random.Random(7)
    world = World(config=SchedulerConfig(max_batch_seqs=4))
    ids = []
    for _ in range(300):
        ids.append(world.arrive(10, traffic=traffic))
        if rng.random() < 0.1:
            world.advance()
    world.drain()
    assert [s.request_id for step in world.steps for s in step.seqs] == ids
