"""Nobody starves: the stated bounds, under any load."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime_py.batching import (
    FinishReason,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    TrafficClass,
)
from tests.batching.decoder_world import DecoderWorld, alone
from tests.batching.virtual import MS, AnyStep
from tests.batching.world import World

BULK = TrafficClass.THROUGHPUT
LOADS = settings(max_examples=20, suppress_health_check=list(HealthCheck))


@LOADS
@given(
    seed=st.integers(0, 10**6),
    load=st.sampled_from([0.5, 0.95, 3.0]),
    wait=st.sampled_from([20, 100]),
    skips=st.sampled_from([2, 10**6]),
    seqs=st.sampled_from([0, 1, 4]),
)
def test_C13_bulk_work_runs_within_its_ageing_bound(
    seed: int, load: float, wait: int, skips: int, seqs: int
) -> None:
    """While bulk work waits, no two of its turns are further apart than the bound, the
    step that is running when the bound ends, and never more than so many steps."""
    config = SchedulerConfig(
        throughput_max_wait_ms=wait,
        throughput_max_skips=skips,
        max_batch_seqs=seqs,
        fill_percent=0,
    )
    world, rng = World(config=config), random.Random(seed)
    bulk = world.core.lanes[0].queue.throughput
    while world.now < 800 * MS:
        until = world.now + int(rng.expovariate(load / (2.2 * MS)))
        while True:
            while bulk.num_seqs < 5:  # there is always some
                world.arrive(rng.randrange(1, 40), traffic=BULK)
            if not 0 <= world.next_event_at() <= until:
                break
            world.advance()
        world.run_until(until)
        world.arrive(rng.randrange(1, 40))
    longest = max(world.cost(s) for s in world.steps)
    last, skipped = 0, 0
    for step in world.steps:
        if any(world.arrived[s.request_id].traffic is BULK for s in step.seqs):
            assert world.started[step.step_id] - last <= wait * MS + longest
            last, skipped = world.started[step.step_id], 0
        else:
            skipped += 1
            assert skipped <= skips


@LOADS
@given(seed=st.integers(0, 10**6), load=st.sampled_from([0.9, 2.0]), target=st.integers(0, 60))
def test_a_latency_request_is_overtaken_only_by_what_came_before_its_due_time(
    seed: int, load: float, target: int
) -> None:
    world = World(config=SchedulerConfig(latency_target_ms=target, max_batch_seqs=2))
    rng = random.Random(seed)
    while world.now < 600 * MS:
        world.run_until(world.now + int(rng.expovariate(load / (2.2 * MS))))
        world.arrive(rng.randrange(1, 40), target_ms=rng.choice([-1, -1, 0, 200]))
    world.drain()
    start = {s.request_id: world.started[step.step_id] for step in world.steps for s in step.seqs}
    ids = sorted(start)
    for older in ids:
        event = world.arrived[older]
        own = event.latency_target_ns if event.latency_target_ns >= 0 else target * MS  # type: ignore[union-attr]
        # Alone it takes 4 ms at most, by the profile twice that
        due = world.arrived_at[older] + own + 10 * MS
        for newer in ids:
            if world.arrived_at[newer] > due:
                assert start[newer] >= start[older]


@pytest.mark.parametrize("preemptions", [0, 1, 3])
def test_every_generation_ends_however_little_memory_there_is(preemptions: int) -> None:
    world = DecoderWorld(blocks=8, config=SchedulerConfig(max_preemptions=preemptions))
    prompts = [[i] * (1 + i % 9) for i in range(20)]
    ids = [world.generate(p, 16, traffic=TrafficClass(i % 2)) for i, p in enumerate(prompts)]
    world.drain()
    for i, prompt in zip(ids, prompts, strict=True):
        assert world.tokens[i, 0] == alone(prompt, 16)


def test_memory_pressure_halves_a_decoders_budget_and_it_recovers() -> None:
    limit = 7

    def outcome(step: AnyStep) -> StepCompleted | None:
        if step.shape.num_tokens > limit:
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        return None

    world = DecoderWorld(
        blocks=200, outcome=outcome, config=SchedulerConfig(memory_recovery_steps=4)
    )
    prompts = [list(range(i, i + 30)) for i in range(8)]
    ids = [world.generate(p, 6) for p in prompts]
    smallest = 64
    while world.advance():
        smallest = min(smallest, world.lane.admission.max_tokens)
    world.check_idle()
    assert smallest < 8
    for i, prompt in zip(ids, prompts, strict=True):
        assert world.tokens[i, 0] == alone(prompt, 6)
    limit = 1000
    world.generate([1], 30)
    world.drain()
    assert world.lane.admission.max_tokens == 64


def test_a_sequence_that_no_memory_holds_fails_alone() -> None:
    def outcome(step: StepScheduled) -> StepCompleted | None:
        if any(s.num_tokens == 33 for s in step.seqs):
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        return None

    world = World(outcome=outcome)
    ids = world.arrive_together(5, 33, 7, 9)
    world.drain()
    assert world.reasons(ids) == [
        FinishReason.DONE,
        FinishReason.OUT_OF_MEMORY,
        FinishReason.DONE,
        FinishReason.DONE,
    ]
