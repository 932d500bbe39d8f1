"""What families of golden traces are made of: the registry, devices, requests at random."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from runtime_py.batching import (
    DecoderStepScheduled,
    QueuePolicy,
    RequestAborted,
    SampleStopped,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    Tick,
    TimeoutAction,
    TrafficClass,
)
from tests.batching.decoder_world import DecoderWorld
from tests.batching.virtual import MS, AnyStep, VirtualWorld
from tests.batching.world import LANE, World, linear_cost

Family = Callable[[int, list[str]], object]
BULK = TrafficClass.THROUGHPUT
FAMILIES: dict[str, tuple[Family, int]] = {}
"""Name -> (family, how many seeds)."""


def family(seeds: int) -> Callable[[Family], Family]:
    def register(make: Family) -> Family:
        FAMILIES[make.__name__] = (make, seeds)
        return make

    return register


def noisy(rng: random.Random, scale: float = 1.0) -> Callable[[AnyStep], int]:
    """A device whose steps take 0.8 to 1.25 times their usual time."""
    known: dict[int, int] = {}

    def cost(step: AnyStep) -> int:
        if step.step_id not in known:
            factor = scale * rng.choice([0.8, 0.9, 1.0, 1.0, 1.1, 1.25])
            base = linear_cost(step) if not isinstance(step, DecoderStepScheduled) else _slow(step)
            known[step.step_id] = int(base * factor)
        return known[step.step_id]

    return cost


def _slow(step: AnyStep) -> int:
    return 2 * MS + 400_000 * step.shape.num_tokens + 500 * step.shape.kv_tokens


def faults(rng: random.Random, chance: float) -> Callable[[Any], StepCompleted | None]:
    def outcome(step: AnyStep) -> StepCompleted | None:
        if rng.random() >= chance:
            return None
        kind = rng.choice(["failed", "memory", "row"])
        if kind == "failed":
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        if kind == "memory":
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        row = rng.randrange(step.shape.num_seqs)
        return StepCompleted(step.step_id, StepOutcome.OK, MS, (row,))

    return outcome


def some_config(rng: random.Random) -> SchedulerConfig:
    """Knobs at random, also extreme ones."""

    def policy() -> QueuePolicy:
        return QueuePolicy(
            rng.choice([4, 30, 1000]),
            rng.choice([0, 0, 10]),
            rng.choice(list(TimeoutAction)),
            rng.choice([0, 0, 15]),
        )

    return SchedulerConfig(
        latency_target_ms=rng.choice([0, 5, 50]),
        ttft_target_ms=rng.choice([0, 50, 200]),
        step_target_ms=rng.choice([2, 10, 50]),
        step_overhead_percent=rng.choice([0, 2, 2, 30]),
        max_batch_tokens=rng.choice([0, 0, 50]),
        max_batch_seqs=rng.choice([0, 0, 4]),
        fill_percent=rng.choice([0, 25, 200]),
        deadline_margin_percent=rng.choice([0, 200]),
        tenant_lead_ms=rng.choice([0, 3, 100]),
        energy_saving=rng.random() < 0.2,
        latency=policy(),
        throughput=policy(),
        throughput_max_wait_ms=rng.choice([0, 20, 500]),
        throughput_max_skips=rng.choice([0, 3, 16]),
        throughput_share_percent=rng.choice([10, 50, 100]),
        warmup_steps=rng.choice([0, 1, 2]),
        cost_memory_steps=rng.choice([4, 32]),
        arrival_window_ms=rng.choice([20, 1000]),
        memory_recovery_steps=rng.choice([1, 4]),
        tpot_target_ms=rng.choice([5, 20, 100]),
        prefill_share_percent=rng.choice([5, 25, 100]),
        max_partial_prefills=rng.choice([2, 4]),
        max_preemptions=rng.choice([0, 1, 3]),
        prefix_caching=rng.random() < 0.8,
    )


def send(world: World, rng: random.Random, lane: str = LANE, most: int = 60) -> int:
    """A request of any kind."""
    lengths = [rng.randrange(1, most) for _ in range(rng.choice([1, 1, 1, 2, 6]))]
    return world.arrive(
        *lengths,
        traffic=TrafficClass(rng.randrange(2)),
        deadline_ms=rng.choice([None, None, None, 0, 3, 30, 200]),
        target_ms=rng.choice([-1, -1, -1, 2, 300]),
        tenant=rng.choice(["", "", "a", "b"]),
        lane=lane,
    )


def say(world: DecoderWorld, rng: random.Random, most: int = 20) -> int:
    """A generation of any kind."""
    shared = rng.choice([0, 0, 8, 12])
    return world.generate(
        [*range(shared), *[rng.randrange(5) for _ in range(rng.randrange(1, most))]],
        rng.randrange(1, 16),
        stop_ids=[rng.randrange(997) for _ in range(rng.choice([0, 30]))],
        samples=rng.choice([1, 1, 1, 2, 3]),
        salt=rng.choice(["", "", "", "x"]),
        traffic=TrafficClass(rng.randrange(2)),
        deadline_ms=rng.choice([None, None, None, 15, 150]),
        ttft_ms=rng.choice([-1, -1, 5]),
        tpot_ms=rng.choice([-1, -1, 8, 300]),
        tenant=rng.choice(["", "", "a", "b"]),
    )


def live(world: VirtualWorld, rng: random.Random, count: int, arrive: Callable[[], object]) -> None:
    """Arrivals, aborts and time, in any order, then to the end."""
    for _ in range(count):
        dice = rng.random()
        if dice < 0.45:
            arrive()
        elif dice < 0.52:
            world.abort(rng.randrange(len(world.arrived) + 1))
        elif dice < 0.85:
            world.advance()
        elif dice < 0.97:
            world.run_until(world.now + rng.randrange(20 * MS))
        else:
            world.handle(
                Tick(), StepCompleted(10**6), RequestAborted(10**6), SampleStopped(10**6, 0)
            )
    world.drain()
