"""Random lives of every kind of lane, with random knobs, faults and aborts."""

from __future__ import annotations

import random

from runtime_py.batching import (
    CostProfile,
    DeviceSpec,
    LaneSpec,
    TrafficClass,
)
from tests.batching.decoder_world import DecoderWorld
from tests.batching.world import World
from tests.golden.family import family, faults, live, noisy, say, send, some_config


@family(40)
def encoder_life(seed: int, lines: list[str]) -> None:
    rng = random.Random(seed)
    threads = rng.randrange(1, 5)
    world = World(
        config=some_config(rng),
        device=DeviceSpec(threads, rng.randrange(1, threads + 1)),
        cost=noisy(rng),
        outcome=faults(rng, 0.06),
        lines=lines,
    )
    live(world, rng, 60, lambda: send(world, rng))


@family(20)
def lanes_life(seed: int, lines: list[str]) -> None:
    """Two or three models with their own knobs and weights on one device."""
    rng = random.Random(1000 + seed)
    names = ["a/embed", "b/embed", "c/embed"][: rng.randrange(2, 4)]
    specs = [
        LaneSpec(
            name,
            rng.choice([64, 256]),
            rng.choice([4, 32]),
            rng.randrange(1, 4),
            CostProfile(token_ns=rng.choice([5e4, 3e5])),
            config=some_config(rng) if rng.random() < 0.5 else None,
        )
        for name in names
    ]
    threads = rng.randrange(1, 4)
    world = World(
        lanes=specs,
        config=some_config(rng),
        device=DeviceSpec(threads, threads),
        cost=noisy(rng),
        outcome=faults(rng, 0.03),
        lines=lines,
    )
    live(world, rng, 60, lambda: send(world, rng, rng.choice(names)))


@family(40)
def decoder_life(seed: int, lines: list[str]) -> None:
    rng = random.Random(2000 + seed)
    threads = rng.randrange(1, 3)
    world = DecoderWorld(
        blocks=rng.choice([12, 24, 200]),
        max_tokens=rng.choice([6, 64]),
        max_seqs=rng.choice([4, 8]),
        max_context=rng.choice([0, 40]),
        config=some_config(rng),
        device=DeviceSpec(threads, threads),
        cost=noisy(rng),
        outcome=faults(rng, 0.05),
        lines=lines,
    )

    def arrive() -> None:
        say(world, rng)
        if rng.random() < 0.2:
            world.stop(rng.randrange(len(world.arrived)), rng.randrange(2))

    live(world, rng, 40, arrive)


@family(12)
def mixed_life(seed: int, lines: list[str]) -> None:
    """A decoder and an encoder on one device."""
    rng = random.Random(3000 + seed)
    threads = rng.randrange(1, 4)
    world = DecoderWorld(
        blocks=60,
        others=[LaneSpec("e", 128, 16, weight=rng.randrange(1, 3))],
        config=some_config(rng),
        device=DeviceSpec(threads, threads),
        cost=noisy(rng),
        lines=lines,
    )

    def arrive() -> None:
        if rng.random() < 0.5:
            say(world, rng)
        else:
            world.encode("e", rng.randrange(1, 40), traffic=TrafficClass(rng.randrange(2)))

    live(world, rng, 40, arrive)
