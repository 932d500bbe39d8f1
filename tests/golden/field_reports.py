"""One regression trace, in several variants, for each batching row of the field reports."""

from __future__ import annotations

import random

from runtime_py.batching import (
    LaneSpec,
    QueuePolicy,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    TrafficClass,
)
from tests.batching.decoder_world import DecoderWorld
from tests.batching.virtual import MS, AnyStep, VirtualWorld
from tests.batching.world import LANE, World, linear_cost
from tests.golden.family import BULK, family, noisy


@family(4)
def C1_deadline_is_no_wait_bound(seed: int, lines: list[str]) -> None:
    slow = 10 if seed % 2 else 1
    world = World(cost=lambda s: linear_cost(s) * (slow if s.step_id > 6 else 1), lines=lines)
    for _ in range(30):
        world.arrive(10, deadline_ms=20)
        world.arrive(12)
        world.run_until(world.now + (2 + seed) * MS)
    world.drain()


@family(4)
def C2_low_load_waits_for_nothing(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    world = World(cost=lambda s: linear_cost(s) * (500 if s.step_id == 0 else 1), lines=lines)
    for _ in range(10):
        world.arrive(8)
        world.drain()
        world.run_until(world.now + int(rng.expovariate(1) * 1000 * MS))
    world.arrive_together(*[8 + seed] * 64)
    world.drain()


@family(4)
def C3_rows_and_tokens(seed: int, lines: list[str]) -> None:
    config = SchedulerConfig(step_target_ms=10_000, step_overhead_percent=2 * (seed % 2))
    world = World(lanes=[LaneSpec(LANE, 400, 32)], config=config, lines=lines)
    for i in range(10):
        world.arrive(*[5 + (i + seed) % 3] * 30)
    world.arrive(*[20] * 60)
    world.drain()


@family(4)
def C5_one_bad_item(seed: int, lines: list[str]) -> None:
    def outcome(step: AnyStep) -> StepCompleted | None:
        if any(s.request_id == 3 + seed for s in step.seqs):
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        return None

    world: VirtualWorld
    if seed % 2:
        generations = DecoderWorld(outcome=outcome, lines=lines)
        for i in range(8):
            generations.generate([i, 9], 6)
        world = generations
    else:
        texts = World(outcome=outcome, lines=lines)
        texts.arrive_together(*[8] * 8)
        texts.advance()
        texts.arrive_together(*[8] * 4)
        world = texts
    world.drain()


@family(4)
def C6_cancel_at_any_time(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    world = World(config=SchedulerConfig(max_batch_seqs=4), lines=lines)
    for _ in range(40):
        i = world.arrive(*[rng.randrange(5, 40)] * rng.choice([1, 3]))
        if rng.random() < 0.5:
            world.run_until(world.now + rng.randrange(6 * MS))
        if rng.random() < 0.5:
            world.abort(rng.choice([i, rng.randrange(i + 1)]))
    world.drain()


@family(4)
def C8_everything_that_waits(seed: int, lines: list[str]) -> None:
    config = SchedulerConfig(
        max_batch_seqs=10 * (seed % 2), step_target_ms=10_000, step_overhead_percent=0
    )
    world = World(config=config, lines=lines)
    world.arrive(50 + seed)
    world.run_until(MS)
    for _ in range(4):
        world.arrive(10)
    world.drain()
    world.arrive_together(*[10] * 100)
    world.drain()


@family(4)
def C10_never_fits(seed: int, lines: list[str]) -> None:
    if seed % 2:
        world = DecoderWorld(blocks=16, lines=lines)
        for length, tokens, samples in ((65, 1, 1), (64, 1, 1), (60, 10, 1), (1, 3, 1), (1, 3, 9)):
            world.generate(range(length), tokens + seed // 2, samples=samples)
        world.drain()
        return
    policy = QueuePolicy(max_queue_size=10)
    encoders = World(
        lanes=[LaneSpec(LANE, 64, 8)], config=SchedulerConfig(latency=policy), lines=lines
    )
    for lengths in ((60,), (3, 65, 2), (64,), (1,), (1,) * 11, (), (5,) * 9, (5,) * 9):
        encoders.arrive(*lengths, traffic=TrafficClass(seed // 2))
    encoders.drain()


@family(4)
def C11_long_prompt_among_streams(seed: int, lines: list[str]) -> None:
    config = SchedulerConfig(tpot_target_ms=20 + 10 * seed)
    world = DecoderWorld(blocks=600, block_size=8, max_tokens=512, config=config, lines=lines)
    for i in range(3):
        world.generate([i, i + 1], 30)
    world.run_until(60 * MS)
    world.generate([k % 50 for k in range(400)], 3)
    for i in range(6):
        world.run_until(world.now + 15 * MS)
        world.generate([i] * 9, 2)
    world.drain()


@family(4)
def C13_nobody_starves(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    config = SchedulerConfig(
        throughput_max_wait_ms=rng.choice([20, 10**6]), throughput_max_skips=4, fill_percent=0
    )
    if seed % 2:
        generations = DecoderWorld(blocks=64, max_seqs=3, config=config, lines=lines)
        for i in range(5):
            generations.generate([7, i], 4, traffic=BULK)
        for i in range(12):
            generations.generate([i, 1, 2], 3 + seed)
            generations.run_until(generations.now + 8 * MS)
        generations.drain()
        return
    world = World(config=config, cost=noisy(rng), lines=lines)
    for _ in range(10):
        world.arrive(20, traffic=BULK)
    for _ in range(40):
        world.arrive(20)
        world.run_until(world.now + int(rng.expovariate(1) * 2.2 * MS))
    world.drain()


@family(4)
def C14_prefixes(seed: int, lines: list[str]) -> None:
    world = DecoderWorld(blocks=24, config=SchedulerConfig(prefix_caching=seed != 3), lines=lines)
    prompt = list(range(20))
    for i in range(3):
        world.generate(prompt, 3)
        world.generate([*prompt[:12], 90 + i], 3, samples=1 + seed % 3)
        world.generate(prompt, 2, salt=["", "tenant"][seed % 2])
        world.drain()
        world.generate([50 + i] * 60, 2)  # evicts
        world.drain()


@family(4)
def C15_awkward_moments(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    world = DecoderWorld(blocks=12, config=SchedulerConfig(max_batch_tokens=5), lines=lines)
    for _ in range(16):
        i = world.generate([rng.randrange(3)] * rng.randrange(1, 14), 6, samples=rng.choice([1, 2]))
        for _ in range(rng.randrange(3)):
            world.advance()
        if rng.random() < 0.7:
            world.abort(rng.randrange(i + 1))
        if rng.random() < 0.3:
            step = next(iter(world.running), -1)
            if step >= 0:
                world.complete(step, StepCompleted(step, StepOutcome.FAILED))
                world.handle(StepCompleted(step, StepOutcome.FAILED))
    world.drain()
