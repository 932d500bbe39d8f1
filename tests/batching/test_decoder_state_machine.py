"""Random lives of generations: arrivals, stops, aborts, faults, too little memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from runtime_py.batching import (
    DecoderStepScheduled,
    DeviceSpec,
    FinishReason,
    GenerationArrived,
    QueuePolicy,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    TrafficClass,
    replay,
)
from tests.batching.decoder_world import LANE, DecoderWorld, alone
from tests.batching.machine import LIVES, LifeMachine, configs, targets_ms, tenants, traffics
from tests.batching.virtual import MS


def check_texts(world: DecoderWorld) -> None:
    """Whatever happened, a sample says what it would have said alone."""
    for (request_id, sample), tokens in world.tokens.items():
        event = world.arrived[request_id]
        assert isinstance(event, GenerationArrived)
        if event.salt:
            continue
        truth = alone(
            event.tokens, event.max_tokens, event.stop_ids, sample, world.lane.max_context
        )
        assert tokens == truth[: len(tokens)]
        reason = world.ends.get((request_id, sample))
        if reason is FinishReason.LENGTH:
            assert tokens == truth


class Decoders(LifeMachine[DecoderWorld]):
    @initialize(
        config=configs,
        threads=st.integers(1, 3),
        blocks=st.integers(4, 40),
        seqs=st.integers(4, 8),
    )
    def start(self, config: SchedulerConfig, threads: int, blocks: int, seqs: int) -> None:
        self.world = DecoderWorld(
            config=config,
            device=DeviceSpec(threads, threads),
            blocks=blocks,
            max_seqs=seqs,
            lines=self.lines,
        )

    @rule(
        kind=st.integers(0, 3),
        length=st.integers(1, 30),
        max_tokens=st.integers(1, 20),
        samples=st.sampled_from([1, 1, 1, 2, 4]),
        stops=st.lists(st.integers(0, 996), max_size=60, unique=True),
        salt=st.sampled_from(["", "", "b"]),
        traffic=traffics,
        deadline=st.sampled_from([None, None, None, 5, 50]),
        ttft=targets_ms,
        tpot=targets_ms,
        tenant=tenants,
    )
    def arrive(
        self,
        kind: int,
        length: int,
        max_tokens: int,
        samples: int,
        stops: list[int],
        salt: str,
        traffic: TrafficClass,
        deadline: int | None,
        ttft: int,
        tpot: int,
        tenant: str,
    ) -> None:
        self.world.generate(
            [*range(min(length, 12)), *[kind] * (length - 12)],
            max_tokens,
            samples=samples,
            stop_ids=stops,
            salt=salt,
            traffic=traffic,
            deadline_ms=deadline,
            ttft_ms=ttft,
            tpot_ms=tpot,
            tenant=tenant,
        )

    @rule(pick=st.integers(0, 10**6), sample=st.integers(-1, 4))
    def stop(self, pick: int, sample: int) -> None:
        if self.world.arrived:
            self.world.stop(pick % len(self.world.arrived), sample)

    @invariant()
    def seats_agree(self) -> None:
        residents = self.world.lane.residents
        assert residents.seats == sum(s.seats for s in residents.running)
        assert residents.seats <= self.world.lane.admission.max_seqs

    @invariant()
    def streams_are_those_that_decode(self) -> None:
        """The list that steps keep is the one that would be made anew."""
        residents = self.world.lane.residents
        if residents.step_id < 0:
            anew = [s for s in residents.running if s.left == 1 and s.request.forked]
            assert residents.streams == [s for s in anew if not s.suspect]

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "world"):
            check_texts(self.world)


Decoders.TestCase.settings = LIVES
TestDecoders = Decoders.TestCase


@pytest.mark.parametrize(("seed", "events"), [(0, 10_000), (1, 3_000)])
def test_C15_ten_thousand_random_events_leak_nothing(seed: int, events: int) -> None:
    """Blocks and references return to zero, every request ends once, texts are right."""
    rng = random.Random(seed)

    def outcome(step: DecoderStepScheduled) -> StepCompleted | None:
        dice = rng.random()
        if dice < 0.02:
            return StepCompleted(step.step_id, StepOutcome.FAILED)
        if dice < 0.03:
            return StepCompleted(step.step_id, StepOutcome.OUT_OF_MEMORY)
        if dice < 0.04:
            row = rng.randrange(step.shape.num_seqs)
            return StepCompleted(step.step_id, StepOutcome.OK, MS, (row,))
        return None

    lines: list[str] = []
    world = DecoderWorld(
        blocks=24,
        config=SchedulerConfig(
            tpot_target_ms=20,
            throughput_max_wait_ms=50,
            latency=QueuePolicy(max_queue_size=12),
            throughput=QueuePolicy(max_queue_size=12, timeout_ms=500),
        ),
        outcome=outcome,
        lines=lines,
    )
    for _ in range(events):
        dice = rng.random()
        if dice < 0.2:
            shared = rng.choice([0, 8, 12])
            world.generate(
                [*range(shared), *[rng.randrange(4) for _ in range(rng.randrange(1, 16))]],
                rng.randrange(1, 24),
                samples=rng.choice([1, 1, 1, 2, 3]),
                stop_ids=[rng.randrange(997) for _ in range(40)],
                traffic=TrafficClass(rng.randrange(2)),
                deadline_ms=rng.choice([None, None, None, 20, 200]),
                tenant=rng.choice("abc"),
            )
        elif dice < 0.24:
            world.abort(rng.randrange(len(world.arrived) + 1))
        elif dice < 0.28:
            world.stop(rng.randrange(len(world.arrived) + 1), rng.randrange(3))
        elif dice < 0.95:
            world.advance()
        else:
            world.run_until(world.now + rng.randrange(20 * MS))
    world.drain()
    check_texts(world)
    assert len(lines) > 0.9 * events
    if seed == 0:
        assert replay(lines) == world.recorder.digest
    assert world.kv.stats.preemptions > events / 500
    assert world.kv.stats.cached_tokens > events / 20
    kinds = {f.reason.value for f in world.finished.values()}
    assert {"done", "aborted", "deadline", "failed", "non_finite", "overloaded"} <= kinds
    assert {r.value for r in world.ends.values()} == {"stop", "length"}
    assert world.steps[0].lane == LANE
