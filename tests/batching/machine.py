"""What random lives of all kinds of lanes have in common: a Hypothesis state machine.

A subclass starts its world and says what may arrive; this class aborts, waits, ends steps
in every way and at every time, loses the device, and checks what has to hold always:
conservation (every request ends exactly once), budgets, progress, and that a replay of
the recorded calls makes the same decisions.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from runtime_py.batching import (
    QueuePolicy,
    RequestAborted,
    SampleStopped,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    Tick,
    TimeoutAction,
    TrafficClass,
    replay,
)
from tests.batching.virtual import MS, VirtualWorld

AnyWorld = TypeVar("AnyWorld", bound=VirtualWorld)
LIVES = settings(
    max_examples=50,
    stateful_step_count=40,
    suppress_health_check=list(HealthCheck),
)

traffics = st.sampled_from(list(TrafficClass))
tenants = st.sampled_from(["", "", "a", "b", "c"])
targets_ms = st.sampled_from([-1, -1, 1, 200])
configs = st.builds(
    SchedulerConfig,
    latency_target_ms=st.integers(0, 100),
    ttft_target_ms=st.sampled_from([0, 10, 200]),
    step_target_ms=st.integers(1, 100),
    step_overhead_percent=st.sampled_from([0, 2, 50]),
    max_batch_tokens=st.sampled_from([0, 40, 100]),
    max_batch_seqs=st.sampled_from([0, 4]),
    fill_percent=st.sampled_from([0, 25, 200]),
    deadline_margin_percent=st.sampled_from([0, 200]),
    tenant_lead_ms=st.sampled_from([0, 5, 100]),
    energy_saving=st.sampled_from([False, False, True]),
    latency=st.builds(
        QueuePolicy,
        max_queue_size=st.integers(6, 60),
        timeout_ms=st.sampled_from([0, 0, 5]),
        timeout_action=st.sampled_from(list(TimeoutAction)),
        max_queue_ms=st.sampled_from([0, 0, 10]),
    ),
    throughput=st.builds(
        QueuePolicy, max_queue_size=st.integers(6, 60), timeout_ms=st.sampled_from([0, 0, 30])
    ),
    throughput_max_wait_ms=st.integers(0, 100),
    throughput_max_skips=st.integers(0, 5),
    throughput_share_percent=st.sampled_from([1, 50, 100]),
    warmup_steps=st.integers(0, 2),
    memory_recovery_steps=st.integers(1, 4),
    tpot_target_ms=st.sampled_from([1, 5, 20, 100]),
    prefill_share_percent=st.sampled_from([1, 25, 100]),
    max_partial_prefills=st.integers(2, 4),
    max_preemptions=st.integers(0, 3),
    prefix_caching=st.booleans(),
)


class LifeMachine(RuleBasedStateMachine, Generic[AnyWorld]):
    """A world checks every decision; this class chooses what happens."""

    world: AnyWorld

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    @rule(pick=st.integers(0, 10**6))
    def abort(self, pick: int) -> None:
        if self.world.arrived:
            self.world.abort(pick % len(self.world.arrived))  # also ids that have ended

    @rule(ms=st.sampled_from([0, 1, 3, 20, 400]))
    def wait(self, ms: int) -> None:
        self.world.run_until(self.world.now + ms * MS)

    @rule(
        pick=st.integers(0, 100),
        outcome=st.sampled_from(
            [StepOutcome.OK, StepOutcome.FAILED, StepOutcome.OUT_OF_MEMORY, StepOutcome.OK]
        ),
        ns=st.sampled_from([0, 1, 50_000, 3 * MS, 10**12]),
        rows=st.lists(st.integers(0, 7), max_size=3),
        again=st.booleans(),
    )
    def complete(
        self, pick: int, outcome: StepOutcome, ns: int, rows: list[int], again: bool
    ) -> None:
        """A step ends in its own way and time; sometimes twice."""
        if not self.world.running:
            return
        step_id = list(self.world.running)[pick % len(self.world.running)]
        count = self.world.running[step_id].shape.num_seqs
        bad = tuple(sorted({r for r in rows if r < count})) if outcome is StepOutcome.OK else ()
        event = StepCompleted(step_id, outcome, ns, bad)
        self.world.complete(step_id, event)
        if again:
            self.world.handle(event)

    @rule()
    def nothing(self) -> None:
        """Events about what does not exist."""
        self.world.handle(
            Tick(), StepCompleted(10**6), RequestAborted(10**6), SampleStopped(10**6, 0)
        )

    @rule(pick=st.integers(0, 60))
    def lose(self, pick: int) -> None:
        if pick == 0 and self.world.running:
            step_id = next(iter(self.world.running))
            self.world.handle(StepCompleted(step_id, StepOutcome.LOST))

    @invariant()
    def totals_agree(self) -> None:
        core = self.world.core
        assert core.num_requests == len(self.world.arrived) - len(self.world.finished)
        used = sum(s.shape.threads for s in core.scheduler.running.values())
        assert core.scheduler._free_threads == core.device.threads - used
        for lane in core.lanes:
            assert lane.share_ns >= 0

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.drain()
        assert replay(self.lines) == self.world.recorder.digest
