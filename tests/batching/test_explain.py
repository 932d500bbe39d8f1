"""Every step can say why: what bound it, which request, and what the slack was."""

from __future__ import annotations

import json

import pytest

from runtime_py.batching import (
    BoundBy,
    FinishReason,
    LaneSpec,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    TrafficClass,
    Turn,
    Why,
    replay,
)
from runtime_py.batching.types import MAX_NS
from runtime_py.errors import ArtifactCorrupt
from tests.batching.decoder_world import DecoderWorld
from tests.batching.world import LANE, MS, World

BULK = TrafficClass.THROUGHPUT


def test_a_step_of_everything_has_no_limit() -> None:
    world = World()
    world.arrive(10, 20)
    step = world.steps[0]
    assert step.bound is BoundBy.ALL
    assert step.why == Why(
        Turn.ONLY, 0, -1, -1, 0, 50 * MS, 0, world.core.lanes[0].arrivals.expected(10**7, 0)
    )


def test_bulk_work_has_all_the_slack_there_is() -> None:
    world = World()
    world.arrive(10, traffic=BULK)
    assert world.steps[0].why.slack_ns == MAX_NS


@pytest.mark.parametrize(
    ("config", "bound", "limit", "blocked"),
    [
        (SchedulerConfig(max_batch_seqs=3), BoundBy.SEQS, 3, 3),
        (SchedulerConfig(max_batch_tokens=45), BoundBy.TOKENS, 45, 4),
        (SchedulerConfig(step_target_ms=5), BoundBy.TIME, 5 * MS, 2),
    ],
)
def test_the_limit_and_who_would_have_been_next(
    config: SchedulerConfig, bound: BoundBy, limit: int, blocked: int
) -> None:
    world = World(config=config)
    world.arrive_together(*[10] * 8)
    step = world.steps[0]
    assert (step.bound, step.why.limit, step.why.blocked) == (bound, limit, blocked)
    assert step.why.waiting == 8 - len(step.seqs)
    world.drain()


def test_the_member_whose_deadline_bound_the_batch() -> None:
    world = World(config=SchedulerConfig(step_target_ms=10_000, step_overhead_percent=0))
    for _ in range(4):
        world.arrive(20)
        world.drain()
    world.arrive(100)
    urgent = world.arrive(20, deadline_ms=20)
    others = [world.arrive(40) for _ in range(10)]
    world.drain()
    step = next(s for s in world.steps if any(q.request_id == urgent for q in s.seqs))
    assert step.bound is BoundBy.DEADLINE
    assert step.why.binding == urgent
    assert step.why.blocked in others
    assert 0 < step.why.limit < 20 * MS
    assert 0 <= step.why.slack_ns < 20 * MS


def test_the_member_whose_due_time_bound_the_bulk_work_beside_it() -> None:
    config = SchedulerConfig(latency_target_ms=2, fill_percent=10_000, step_overhead_percent=0)
    world = World(config=config)
    for _ in range(4):
        world.arrive(20)
        world.drain()
    world.arrive(10)
    waits = world.arrive(10, send=False)
    bulk = world.arrive(*[10] * 30, traffic=BULK, send=False)
    world.handle(world.arrived[waits], world.arrived[bulk])
    world.advance()
    step = world.steps[-1]
    assert (step.bound, step.why.binding, step.why.blocked) == (BoundBy.TIME, waits, bulk)
    world.drain()


def test_late_members_have_negative_slack() -> None:
    world = World(config=SchedulerConfig(latency_target_ms=1, max_batch_seqs=1))
    world.arrive_together(*[50] * 4)
    world.drain()
    slacks = [s.why.slack_ns for s in world.steps]
    assert slacks == sorted(slacks, reverse=True)
    assert slacks[-1] < -8 * MS


def test_the_turn_of_overdue_bulk_work_is_told() -> None:
    world = World(config=SchedulerConfig(throughput_max_skips=2, fill_percent=0))
    world.arrive(10)
    bulk = world.arrive(10, traffic=BULK)
    for _ in range(6):
        for _ in range(3):
            world.arrive(60)
        world.advance()
    step = next(s for s in world.steps if any(q.request_id == bulk for q in s.seqs))
    assert step.why.overdue == 1
    assert sum(s.why.overdue for s in world.steps) == 1
    world.drain()


def test_why_a_lane_got_the_device() -> None:
    lanes = [LaneSpec("bulk", 100, 8), LaneSpec("live", 100, 8)]
    config = SchedulerConfig(latency_target_ms=500, step_target_ms=20, fill_percent=0)
    world = World(lanes=lanes, config=config)
    for _ in range(50):
        world.arrive(2, lane="live")
    world.run_until(100 * MS)
    for _ in range(40):
        world.arrive(30, traffic=BULK, lane="bulk")
    world.arrive(20, lane="live")
    world.drain()
    turns = [s.why.turn for s in world.steps]
    assert turns[0] is Turn.ONLY
    assert Turn.SLACK in turns
    world.run_until(world.now + 5000 * MS)  # nobody is expected any more
    world.arrive_together(*[30] * 20, traffic=BULK, lane="bulk")
    world.arrive(20, lane="live")
    world.arrive(20, traffic=BULK, lane="live")
    world.drain()
    turns = [s.why.turn for s in world.steps[len(turns) :]]
    assert turns[:2] == [Turn.ONLY, Turn.URGENT]
    assert Turn.SHARE in turns
    for step in world.steps:
        if step.why.turn is Turn.SLACK:
            assert step.lane == "bulk"


def test_a_retry_names_its_suspect() -> None:
    def outcome(step: StepScheduled) -> StepCompleted | None:
        if any(s.request_id == 1 for s in step.seqs):
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        return None

    world = World(outcome=outcome)
    world.arrive_together(*[5] * 3)
    world.drain()
    assert [s.why.binding for s in world.steps[1:]] == [0, 1, 2]
    assert {s.bound for s in world.steps[1:]} == {BoundBy.RETRY}


def test_a_shed_request_says_what_it_would_have_needed() -> None:
    world = World()
    for _ in range(4):
        world.arrive(20)
        world.drain()
    world.arrive(200)
    doomed = world.arrive(50, deadline_ms=10)
    world.drain()
    finished = world.finished[doomed]
    assert finished.reason is FinishReason.DEADLINE
    assert 5 * MS <= finished.needed_ns <= 8 * MS
    assert finished.value + finished.needed_ns >= 10 * MS


def test_decoder_steps_explain_themselves() -> None:
    world = DecoderWorld(
        blocks=12, max_seqs=3, max_tokens=16, config=SchedulerConfig(tpot_target_ms=30)
    )
    first = world.generate([1] * 6, 30)
    world.run_until(100 * MS)
    for i in range(5):
        world.generate([i] * 20, 10, traffic=TrafficClass(i % 2))
    world.drain()
    bounds = {s.bound for s in world.steps}
    assert {BoundBy.ALL, BoundBy.TPOT, BoundBy.MEMORY} <= bounds
    for step in world.steps:
        members = {s.request_id for s in step.seqs}
        why = step.why
        if step.bound is BoundBy.ALL:
            assert (why.blocked, why.binding, why.limit) == (-1, -1, 0)
        else:
            assert why.blocked in world.arrived
        if step.bound is BoundBy.TPOT and why.binding >= 0:
            assert why.binding in members
        if step.bound is BoundBy.MEMORY:
            assert 0 <= why.limit <= 12
        assert why.waiting >= 0
    quiet = next(s for s in world.steps if s.step_id == 3)
    assert quiet.why.slack_ns == 30 * MS - quiet.predicted_ns
    assert first in world.finished


def test_the_reason_is_part_of_the_digest() -> None:
    lines: list[str] = []
    world = World(lines=lines)
    world.arrive_together(*[10] * 8)
    world.drain()
    record = json.loads(lines[1])
    step = next(d for d in record["d"] if d[0] == "step")
    assert isinstance(step[-1], list)
    step[-1][2] += 1
    with pytest.raises(ArtifactCorrupt, match="this core makes"):
        replay([lines[0], json.dumps(record)])
    assert step[2] == LANE
