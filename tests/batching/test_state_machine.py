"""Random lives of the core: arrivals, faults, aborts, late completions, in any order."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime_py.batching import (
    DeviceSpec,
    LaneSpec,
    QueuePolicy,
    RequestAborted,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    Tick,
    TimeoutAction,
    TrafficClass,
    replay,
)
from tests.batching.world import LANE, MS, World

OTHER = "n/embed"

configs = st.builds(
    SchedulerConfig,
    latency_target_ms=st.integers(0, 100),
    step_target_ms=st.integers(1, 100),
    max_batch_tokens=st.sampled_from([0, 40, 100]),
    max_batch_seqs=st.sampled_from([0, 1, 3]),
    fill_percent=st.sampled_from([0, 25, 200]),
    latency=st.builds(
        QueuePolicy,
        max_queue_size=st.integers(4, 60),
        timeout_ms=st.sampled_from([0, 0, 5]),
        timeout_action=st.sampled_from(list(TimeoutAction)),
    ),
    throughput=st.builds(
        QueuePolicy, max_queue_size=st.integers(4, 60), timeout_ms=st.sampled_from([0, 0, 30])
    ),
    throughput_max_wait_ms=st.integers(0, 100),
    throughput_max_skips=st.integers(0, 5),
    warmup_steps=st.integers(0, 2),
    memory_recovery_steps=st.integers(1, 4),
)


class Core(RuleBasedStateMachine):
    """`World` checks every decision; this class chooses what happens."""

    @initialize(
        config=configs,
        threads=st.integers(1, 4),
        steps=st.integers(1, 4),
        two_lanes=st.booleans(),
    )
    def start(self, config: SchedulerConfig, threads: int, steps: int, two_lanes: bool) -> None:
        self.lines: list[str] = []
        lanes = [LaneSpec(LANE, 64, 8)]
        if two_lanes:
            lanes.append(LaneSpec(OTHER, 128, 4, weight=3))
        self.two_lanes = two_lanes
        self.world = World(
            config=config,
            device=DeviceSpec(threads, steps),
            lanes=lanes,
            lines=self.lines,
        )

    @rule(
        lengths=st.lists(st.integers(1, 40), min_size=1, max_size=6),
        traffic=st.sampled_from(list(TrafficClass)),
        deadline=st.sampled_from([None, None, 1, 5, 50]),
        other=st.booleans(),
    )
    def arrive(
        self, lengths: list[int], traffic: TrafficClass, deadline: int | None, other: bool
    ) -> None:
        lane = OTHER if other and self.two_lanes else LANE
        self.world.arrive(*lengths, traffic=traffic, deadline_ms=deadline, lane=lane)

    @rule(lengths=st.lists(st.integers(1, 100), min_size=2, max_size=10))
    def burst(self, lengths: list[int]) -> None:
        self.world.arrive_together(*lengths)

    @rule(pick=st.integers(0, 10**6))
    def abort(self, pick: int) -> None:
        if self.world.arrived:
            self.world.abort(pick % len(self.world.arrived))  # also ids that have ended

    @rule(ms=st.sampled_from([0, 1, 3, 20, 400]))
    def wait(self, ms: int) -> None:
        self.world.run_until(self.world.now + ms * MS)

    @rule()
    def tick(self) -> None:
        self.world.handle(Tick())

    @rule(
        pick=st.integers(0, 100),
        outcome=st.sampled_from(
            [StepOutcome.OK, StepOutcome.FAILED, StepOutcome.OUT_OF_MEMORY, StepOutcome.OK]
        ),
        ns=st.sampled_from([0, 1, 50_000, 3 * MS, 10**12]),
        rows=st.lists(st.integers(0, 7), max_size=3),
        again=st.booleans(),
    )
    def complete(
        self, pick: int, outcome: StepOutcome, ns: int, rows: list[int], again: bool
    ) -> None:
        """A step ends in its own way and time; sometimes twice."""
        if not self.world.running:
            return
        step_id = list(self.world.running)[pick % len(self.world.running)]
        count = self.world.running[step_id].shape.num_seqs
        bad = tuple(sorted({r for r in rows if r < count})) if outcome is StepOutcome.OK else ()
        event = StepCompleted(step_id, outcome, ns, bad)
        self.world.handle(event)
        if again:
            self.world.handle(event)

    @rule()
    def unknown_step(self) -> None:
        self.world.handle(StepCompleted(10**6), RequestAborted(10**6))

    @rule(pick=st.integers(0, 100))
    def lose(self, pick: int) -> None:
        if pick == 0 and self.world.running:
            step_id = next(iter(self.world.running))
            self.world.handle(StepCompleted(step_id, StepOutcome.LOST))

    @invariant()
    def totals_agree(self) -> None:
        core = self.world.core
        assert core.num_requests == len(self.world.arrived) - len(self.world.finished)
        free = core.scheduler._free_threads
        assert free == core.device.threads - sum(
            s.shape.threads for s in core.scheduler.running.values()
        )

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.drain()
        assert replay(self.lines) == self.world.recorder.digest


Core.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCore = Core.TestCase


@pytest.mark.parametrize("seed", range(3))
def test_ten_thousand_random_events_end_every_request_once(seed: int) -> None:
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
    for _ in range(10_000):
        dice = rng.random()
        if dice < 0.5:
            lengths = [rng.randrange(1, 60) for _ in range(rng.choice([1, 1, 1, 5, 20]))]
            world.arrive(
                *lengths,
                traffic=TrafficClass(rng.randrange(2)),
                deadline_ms=rng.choice([None, None, 2, 10, 100]),
            )
        elif dice < 0.6:
            world.abort(rng.randrange(len(world.arrived) + 1))
        elif dice < 0.95:
            world.advance()
        else:
            world.run_until(world.now + rng.randrange(20 * MS))
    world.drain()
    assert len(lines) > 10_000
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
