"""A device that slows down, a load that jumps: absorbed within a second of device time."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from runtime_py.batching import FinishReason, SchedulerConfig, StepScheduled, TrafficClass
from tests.batching.decoder_world import DecoderWorld, decoder_cost
from tests.batching.test_quality import DONE, length, poisson, quantile
from tests.batching.world import MS, World, linear_cost


@pytest.mark.parametrize("factor", [3.0, 0.33])
def test_a_device_that_changes_speed_is_known_again_in_a_second(factor: float) -> None:
    scale = 1.0
    world = World(cost=lambda step: int(linear_cost(step) * scale))
    rng = random.Random(1)

    def run(seconds: float) -> None:
        end = world.now + int(seconds * 1000 * MS)
        while world.now < end:
            world.arrive(length(rng))
            world.run_until(world.now + int(rng.expovariate(1 / 8) * MS))

    run(4)
    scale = factor
    run(1)
    before = len(world.steps)
    run(2)
    for step in world.steps[before:]:
        assert step.predicted_ns == pytest.approx(world.cost(step), rel=0.3)


def test_deadlines_are_kept_again_after_a_slow_down() -> None:
    """Three times slower is still fast enough for the load, once it is known."""
    scale = 1.0
    world = World(cost=lambda step: int(linear_cost(step) * scale))
    poisson(world, 0.4, 3, 1, deadline_ms=200)
    scale = 3.0
    poisson(world, 0.4, 1, 2, deadline_ms=200)
    ids = poisson(world, 0.4, 4, 3, deadline_ms=200)
    world.drain()
    good = [i for i in ids if world.finished[i].reason is DONE and world.latency_ms(i) <= 200]
    assert len(good) >= 0.95 * len(ids)


def test_streams_keep_their_tpot_on_a_device_that_slows_down() -> None:
    scale = 1.0
    world = DecoderWorld(
        blocks=2000,
        max_tokens=2048,
        config=SchedulerConfig(tpot_target_ms=60),
        cost=lambda step: int(decoder_cost(step) * scale),
    )
    running = [world.generate([i], 900) for i in range(3)]
    for i in range(6):
        world.generate([i, *range(300)], 3)
        world.run_until(world.now + 400 * MS)
    scale = 3.0
    for i in range(3):
        world.generate([i, 1, *range(300)], 3)
        world.run_until(world.now + 400 * MS)
    now = world.now
    for i in range(6):
        world.generate([i, 2, *range(300)], 3)
        world.run_until(world.now + 400 * MS)
    for request in running:
        times = [t for t in world.times[request, 0] if t > now]
        assert len(times) > 20
        assert max(b - a for a, b in pairwise(times)) <= 1.25 * 60 * MS


def test_a_tenfold_load_is_absorbed_in_a_second() -> None:
    """From a twentieth to half of the capacity, and back: latencies settle at once."""
    world = World()
    poisson(world, 0.05, 4, 1)
    poisson(world, 0.5, 1, 2)
    ids = poisson(world, 0.5, 3, 3)
    world.drain()
    assert set(world.reasons(ids)) == {FinishReason.DONE}
    assert quantile([world.latency_ms(i) for i in ids], 0.99) < 60


def test_expected_latency_work_shortens_bulk_steps_at_once() -> None:
    world = World()
    longest: list[float] = []

    def phase(latency: bool) -> None:
        rng, before = random.Random(3), len(world.steps)
        for _ in range(100):
            while world.core.lanes[0].queue.throughput.num_seqs < 60:
                world.arrive(*[20] * 20, traffic=TrafficClass.THROUGHPUT)
            world.run_until(world.now + int(rng.expovariate(1 / 10) * MS))
            if latency:
                world.arrive(10)
        steps = world.steps[before:][-20:]
        longest.append(max(s.predicted_ns for s in steps) / MS)

    phase(False)
    phase(True)
    phase(False)
    phase(False)
    assert longest[0] > 40
    assert longest[1] < 20
    assert longest[3] > 40


def test_the_error_of_every_prediction_is_counted() -> None:
    def cost(step: StepScheduled) -> int:
        return linear_cost(step) * (2 if step.step_id == 20 else 1)

    world = World(cost=cost)
    for _ in range(40):
        world.arrive(50)
        world.drain()
    stats = world.core.stats
    assert stats.measured_steps == sum(stats.prediction_errors.values()) == 40
    assert stats.measured_ns == sum(cost(s) for s in world.steps)
    assert stats.predicted_ns == sum(s.predicted_ns for s in world.steps)
    assert stats.prediction_errors[50] >= 1  # the step that took twice the time
    assert stats.prediction_errors[0] >= 25
    assert world.core.lanes[0].predictions.prediction_errors == stats.prediction_errors
