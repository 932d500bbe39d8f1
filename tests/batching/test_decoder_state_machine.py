"""Random lives of generations: arrivals, stops, aborts, faults, too little memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from runtime_py.batching import (
    DecoderStepScheduled,
    DeviceSpec,
    FinishReason,
    GenerationArrived,
    QueuePolicy,
    RequestAborted,
    SampleStopped,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    Tick,
    TrafficClass,
    replay,
)
from tests.batching.decoder_world import LANE, MS, DecoderWorld, alone

configs = st.builds(
    SchedulerConfig,
    tpot_target_ms=st.sampled_from([1, 5, 20, 100]),
    prefill_share_percent=st.sampled_from([1, 25, 100]),
    max_partial_prefills=st.integers(2, 4),
    max_preemptions=st.integers(0, 3),
    prefix_caching=st.booleans(),
    max_batch_tokens=st.sampled_from([0, 3, 10]),
    max_batch_seqs=st.sampled_from([0, 4]),
    latency=st.builds(QueuePolicy, max_queue_size=st.integers(6, 30)),
    throughput=st.builds(
        QueuePolicy, max_queue_size=st.integers(6, 30), timeout_ms=st.sampled_from([0, 0, 30])
    ),
    throughput_max_wait_ms=st.integers(0, 100),
    throughput_max_skips=st.integers(0, 5),
    warmup_steps=st.integers(0, 2),
    memory_recovery_steps=st.integers(1, 4),
)


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
        reason = world.reasons.get((request_id, sample))
        if reason is FinishReason.LENGTH:
            assert tokens == truth


class Core(RuleBasedStateMachine):
    """`DecoderWorld` checks every decision; this class chooses what happens."""

    @initialize(
        config=configs,
        threads=st.integers(1, 3),
        blocks=st.integers(4, 40),
        seqs=st.integers(4, 8),
    )
    def start(self, config: SchedulerConfig, threads: int, blocks: int, seqs: int) -> None:
        self.lines: list[str] = []
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
        traffic=st.sampled_from(list(TrafficClass)),
        deadline=st.sampled_from([None, None, None, 5, 50]),
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
    ) -> None:
        self.world.generate(
            [*range(min(length, 12)), *[kind] * (length - 12)],
            max_tokens,
            samples=samples,
            stop_ids=stops,
            salt=salt,
            traffic=traffic,
            deadline_ms=deadline,
        )

    @rule(pick=st.integers(0, 10**6))
    def abort(self, pick: int) -> None:
        if self.world.arrived:
            self.world.abort(pick % len(self.world.arrived))

    @rule(pick=st.integers(0, 10**6), sample=st.integers(-1, 4))
    def stop(self, pick: int, sample: int) -> None:
        if self.world.arrived:
            self.world.stop(pick % len(self.world.arrived), sample)

    @rule(ms=st.sampled_from([0, 1, 3, 20, 100]))
    def wait(self, ms: int) -> None:
        self.world.run_until(self.world.now + ms * MS)

    @rule(
        outcome=st.sampled_from(
            [StepOutcome.OK, StepOutcome.OK, StepOutcome.FAILED, StepOutcome.OUT_OF_MEMORY]
        ),
        ns=st.sampled_from([0, 1, 50_000, 3 * MS, 10**12]),
        rows=st.lists(st.integers(0, 7), max_size=2),
        again=st.booleans(),
    )
    def complete(self, outcome: StepOutcome, ns: int, rows: list[int], again: bool) -> None:
        """A step ends in its own way and time; sometimes twice."""
        if not self.world.running:
            return
        step_id = next(iter(self.world.running))
        count = self.world.running[step_id].shape.num_seqs
        bad = tuple(sorted({r for r in rows if r < count}))
        self.world.complete(step_id, StepCompleted(step_id, outcome, ns, bad))
        if again:
            self.world.handle(StepCompleted(step_id, outcome, ns, bad))

    @rule()
    def nothing(self) -> None:
        self.world.handle(
            Tick(), StepCompleted(10**6), RequestAborted(10**6), SampleStopped(10**6, 0)
        )

    @rule(pick=st.integers(0, 50))
    def lose(self, pick: int) -> None:
        if pick == 0 and self.world.running:
            step_id = next(iter(self.world.running))
            self.world.handle(StepCompleted(step_id, StepOutcome.LOST))

    @invariant()
    def totals_agree(self) -> None:
        world, residents = self.world, self.world.lane.residents
        assert world.core.num_requests == len(world.arrived) - len(world.finished)
        assert residents.seats == sum(s.seats for s in residents.running)
        assert residents.seats <= world.lane.admission.max_seqs

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.drain()
        check_texts(self.world)
        assert replay(self.lines) == self.world.recorder.digest


Core.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCore = Core.TestCase


@pytest.mark.parametrize("seed", range(2))
def test_C15_ten_thousand_random_events_leak_nothing(seed: int) -> None:
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
    for _ in range(10_000):
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
    assert len(lines) > 9_000
    if seed == 0:
        assert replay(lines) == world.recorder.digest
    assert world.kv.stats.preemptions > 20
    assert world.kv.stats.cached_tokens > 500
    kinds = {f.reason.value for f in world.finished.values()}
    assert {"done", "aborted", "deadline", "failed", "non_finite", "overloaded"} <= kinds
    assert {r.value for r in world.reasons.values()} == {"stop", "length"}
    assert world.steps[0].lane == LANE
