"""Energy saving: fewer, larger steps, and nobody late because of it."""

from __future__ import annotations

import random

import pytest

from runtime_py.batching import FinishReason, LaneSpec, SchedulerConfig, TrafficClass
from tests.batching.decoder_world import DecoderWorld
from tests.batching.world import LANE, MS, World

SAVING = SchedulerConfig(energy_saving=True, latency_target_ms=100)


def poisson(world: World, per_s: float, seconds: float, **options: object) -> list[int]:
    rng = random.Random(3)
    at = world.now
    ids: list[int] = []
    end = world.now + int(seconds * 1000 * MS)
    while True:
        at += int(rng.expovariate(per_s) * 1000 * MS)
        if at > end:
            return ids
        world.run_until(at)
        ids.append(world.arrive(10, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("per_s", [50, 200])
def test_steps_become_fewer_and_nobody_late(per_s: int) -> None:
    worlds = [World(config=c) for c in (SAVING, SchedulerConfig(latency_target_ms=100))]
    for world in worlds:
        poisson(world, per_s, 5)
        world.drain()
        assert all(f.reason is FinishReason.DONE for f in world.finished.values())
    saving, quick = worlds
    assert len(saving.steps) < len(quick.steps) / 3
    latencies = sorted(saving.latency_ms(i) for i in saving.finished)
    assert latencies[int(0.99 * len(latencies))] <= 100 + 5


def test_deadlines_are_kept_while_waiting() -> None:
    world = World(config=SAVING)
    poisson(world, 200, 2)
    ids = poisson(world, 200, 2, deadline_ms=30)
    world.drain()
    done = [i for i in ids if world.finished[i].reason is FinishReason.DONE]
    assert len(done) >= 0.98 * len(ids)


def test_a_lone_request_starts_at_once() -> None:
    world = World(config=SAVING)
    for _ in range(20):
        world.run_until(world.now + 3000 * MS)
        i = world.arrive(10)
        world.drain()
        assert world.latency_ms(i) < 3


def test_a_full_step_starts_at_once() -> None:
    world = World(config=SAVING, lanes=[LaneSpec(LANE, 100, 64)])
    poisson(world, 200, 2)
    world.drain()
    before = len(world.steps)
    world.arrive_together(*[10] * 11)
    assert len(world.steps) == before + 1


def test_the_wake_up_is_when_the_slack_ends() -> None:
    world = World(config=SAVING)
    poisson(world, 200, 2)
    world.drain()
    now = world.now
    world.arrive(10)
    assert not world.running
    assert now + 80 * MS < world.wake <= now + 101 * MS
    world.drain()
    assert world.started[world.steps[-1].step_id] >= now + 80 * MS


def test_bulk_work_waits_for_company_no_longer_than_its_bound() -> None:
    world = World(config=SchedulerConfig(energy_saving=True, throughput_max_wait_ms=200))
    ids = poisson(world, 50, 4, traffic=TrafficClass.THROUGHPUT)
    world.drain()
    assert max(world.latency_ms(i) for i in ids) <= 200 + 15  # and the step itself
    assert len(world.steps) < len(ids) / 4


def test_prompts_wait_for_company_and_streams_do_not_wait() -> None:
    world = DecoderWorld(
        blocks=400, config=SchedulerConfig(energy_saving=True, ttft_target_ms=100), max_seqs=16
    )
    rng = random.Random(1)
    requests = []
    for i in range(100):
        requests.append(world.generate([i, 2, 3], 1))
        world.run_until(world.now + int(rng.expovariate(200) * 1000 * MS))
    stream = world.generate([7, 8], 30)
    world.drain()
    assert len(world.steps) < 70
    assert max(world.ttft_ms(r) for r in requests) < 100 + 20
    assert max(world.gaps_ms(stream)) < 40
