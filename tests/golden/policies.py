"""One policy each: tenants, energy, change points, threads, lanes, memory, a lost device."""

from __future__ import annotations

import random

from runtime_py.batching import (
    CostProfile,
    DeviceSpec,
    LaneSpec,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    TrafficClass,
)
from tests.batching.decoder_world import DecoderWorld
from tests.batching.virtual import MS, AnyStep
from tests.batching.world import LANE, World, linear_cost
from tests.golden.family import BULK, family, noisy


@family(6)
def tenants_share(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(tenant_lead_ms=rng.choice([0, 5, 100]), max_batch_seqs=4)
    world = World(config=config, cost=noisy(rng), lines=lines)
    traffic = TrafficClass(seed % 2)
    for _ in range(40):
        world.arrive(rng.randrange(5, 50), tenant="flood", traffic=traffic)
    for _ in range(12):
        world.run_until(world.now + rng.randrange(30 * MS))
        for _ in range(rng.randrange(1, 4)):
            world.arrive(10, tenant=f"t{rng.randrange(4)}", traffic=traffic)
        if rng.random() < 0.3:
            world.abort(rng.randrange(len(world.arrived)))
    world.drain()


@family(2)
def tenants_come_and_go(seed: int, lines: list[str]) -> None:
    """More names than are remembered."""
    world = World(lines=lines, config=SchedulerConfig(max_batch_seqs=2, tenant_lead_ms=1))
    for i in range(20):
        world.arrive(20, tenant="steady")
        for k in range(8):
            world.arrive(1 + (i + seed) % 7, tenant=f"{i}-{k}")
        world.run_until(world.now + 8 * MS)
    world.drain()


@family(6)
def energy_saving(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(energy_saving=True, latency_target_ms=40, arrival_window_ms=200)
    world = World(config=config, cost=noisy(rng), lines=lines)
    for _ in range(60):
        world.run_until(world.now + int(rng.expovariate(1 / 5) * MS))
        world.arrive(
            10,
            traffic=BULK if rng.random() < 0.2 else TrafficClass.LATENCY,
            deadline_ms=rng.choice([None, 25]),
        )
    world.drain()


@family(4)
def energy_saving_prompts(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(energy_saving=True, ttft_target_ms=60, arrival_window_ms=200)
    world = DecoderWorld(blocks=200, config=config, cost=noisy(rng), lines=lines)
    for i in range(40):
        world.run_until(world.now + int(rng.expovariate(1 / 6) * MS))
        world.generate([i, 1, 2], rng.randrange(1, 4))
    world.drain()


@family(6)
def change_points(seed: int, lines: list[str]) -> None:
    """The device slows down, then speeds up; the load jumps with it."""
    rng = random.Random(seed)
    scale = [1.0]
    world = World(cost=lambda s: int(linear_cost(s) * scale[0]), lines=lines)
    for scale[0], gap in ((1.0, 8), (3.0, 8), (0.5, 1), (1.0, 10)):
        for _ in range(16):
            world.run_until(world.now + int(rng.expovariate(1 / gap) * MS))
            world.arrive(rng.randrange(4, 60), deadline_ms=rng.choice([None, 40]))
    world.drain()


@family(4)
def threads_are_split(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    barrier = rng.choice([1e4, 5e6])
    lanes = [LaneSpec(LANE, 512, 64, profile=CostProfile(thread_ns=barrier, token_ns=1e5))]
    world = World(device=DeviceSpec(4, 4), lanes=lanes, lines=lines)
    for _ in range(25):
        world.arrive_together(*[rng.randrange(4, 80) for _ in range(rng.randrange(1, 8))])
        world.run_until(world.now + rng.randrange(10 * MS))
    world.drain()


@family(4)
def late_lanes_share(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    lanes = [LaneSpec("a", 64, 8), LaneSpec("b", 64, 8, weight=2), LaneSpec("c", 64, 8)]
    world = World(lanes=lanes, cost=noisy(rng), lines=lines)
    for _ in range(30):
        for name in "abc":
            world.arrive(rng.randrange(5, 30), lane=name, traffic=TrafficClass(name == "c"))
    world.drain()


@family(4)
def memory_pressure(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    limit = 100

    def outcome(step: AnyStep) -> StepCompleted | None:
        if step.shape.num_tokens > limit:
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        return None

    config = SchedulerConfig(step_target_ms=1000, step_overhead_percent=0, memory_recovery_steps=2)
    world = World(config=config, outcome=outcome, lines=lines)
    world.arrive_together(*[rng.randrange(5, 40) for _ in range(25)])
    world.arrive(20, 150, 5)
    world.drain()
    limit = 1000
    for _ in range(12):
        world.arrive_together(30, 30)
        world.drain()


@family(4)
def decoder_memory_pressure(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    limit = 6

    def outcome(step: AnyStep) -> StepCompleted | None:
        small = limit if rng.random() < 0.95 else 0
        if step.shape.num_tokens > small:
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        return None

    config = SchedulerConfig(memory_recovery_steps=2)
    world = DecoderWorld(config=config, outcome=outcome, lines=lines)
    for i in range(7):
        world.generate([i] * rng.randrange(1, 12), rng.randrange(2, 8))
    world.drain()


@family(4)
def preemption(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    world = DecoderWorld(
        blocks=rng.choice([8, 12]),
        max_seqs=4,
        config=SchedulerConfig(max_preemptions=rng.choice([0, 1, 3])),
        lines=lines,
    )
    for i in range(6):
        world.generate([i] * (6 + seed), 18, traffic=TrafficClass(i % 2), samples=1 + i % 2)
    world.drain()


@family(2)
def lost_device(seed: int, lines: list[str]) -> None:
    world = DecoderWorld(others=[LaneSpec("e", 64, 8)], device=DeviceSpec(2, 2), lines=lines)
    for i in range(5):
        world.generate([i], 9, samples=2)
        world.encode("e", 9 + seed, 9, traffic=TrafficClass(i % 2))
    world.advance()
    for step_id in list(world.running)[: 1 + seed]:
        world.handle(StepCompleted(step_id, StepOutcome.LOST))
    world.generate([1], 1)
    world.encode("e", 3, traffic=BULK)
    world.drain()


@family(6)
def bulk_steps_follow_expectations(seed: int, lines: list[str]) -> None:
    """Bulk steps are short while latency work is expected, at every rate of it."""
    rng = random.Random(seed)
    world = World(lines=lines, config=SchedulerConfig(arrival_window_ms=500))
    for gap in (1000, 2 + 6 * seed, 40 + 30 * seed):
        for _ in range(10):
            if world.core.lanes[0].queue.throughput.num_seqs < 60:
                world.arrive(*[20] * 60, traffic=BULK)
            world.run_until(world.now + min(int(rng.expovariate(1 / gap) * MS), 200 * MS))
            if gap < 1000:
                world.arrive(10)
    world.drain()
