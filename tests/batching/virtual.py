"""A virtual clock and device around the real core: what all worlds of these tests share."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from runtime_py.batching import (
    BatchingCore,
    Decision,
    DecoderStepScheduled,
    DeviceSpec,
    Event,
    FinishReason,
    GenerationArrived,
    Idle,
    LaneSpec,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    SchedulerConfig,
    StepCompleted,
    StepScheduled,
    Tick,
    TraceRecorder,
)
from runtime_py.batching.types import MAX_NS

MS = 1_000_000
AnyStep = StepScheduled | DecoderStepScheduled
_Arrival = TypeVar("_Arrival", RequestArrived, GenerationArrived)


class VirtualWorld:
    """Runs a core against virtual time, and checks its promises on every call.

    Attributes:
        now: nanoseconds.
        running: step id -> step on the device; started: when each step began.
        arrived, arrived_at: request id -> its event, and when it came.
        finished, finished_at: request id -> its `RequestFinished`, and when it came.
        wake: what the last `Idle` asked for.
    """

    def __init__(
        self,
        lanes: Sequence[LaneSpec],
        device: DeviceSpec | None,
        config: SchedulerConfig | None,
        cost: Callable[[Any], int],
        outcome: Callable[[Any], StepCompleted | None] | None,
        lines: list[str] | None,
    ) -> None:
        self.recorder = TraceRecorder(None if lines is None else lines.append)
        self.core = BatchingCore(lanes, device, config, self.recorder)
        self.device = self.core.device
        self.now = 0
        self.cost = cost
        self.outcome = outcome
        self.started: dict[int, int] = {}
        self.running: dict[int, AnyStep] = {}
        self.arrived: dict[int, RequestArrived | GenerationArrived] = {}
        self.arrived_at: dict[int, int] = {}
        self.finished: dict[int, RequestFinished] = {}
        self.finished_at: dict[int, int] = {}
        self.wake = -1
        self._completions: list[tuple[int, int]] = []

    # --- events

    @property
    def next_id(self) -> int:
        return len(self.arrived)

    def deadline(self, ms: float | None) -> int:
        return -1 if ms is None else self.now + int(ms * MS)

    def register(self, event: _Arrival) -> _Arrival:
        """Note a request that is about to arrive."""
        self.arrived[event.request_id] = event
        self.arrived_at[event.request_id] = self.now
        return event

    def abort(self, request_id: int) -> None:
        self.handle(RequestAborted(request_id))

    def handle(self, *events: Event) -> list[Decision]:
        for event in events:
            if isinstance(event, StepCompleted):
                self.running.pop(event.step_id, None)
        decisions = self.core.handle_all(events, self.now)
        assert isinstance(decisions[-1], Idle)
        for decision in decisions:
            if isinstance(decision, StepScheduled | DecoderStepScheduled):
                self.begin(decision)
            elif isinstance(decision, RequestFinished):
                assert decision.request_id not in self.finished, "a request ended twice"
                self.finished[decision.request_id] = decision
                self.finished_at[decision.request_id] = self.now
            self.take(decision)
        self.wake = decisions[-1].wake_at_ns
        self.check_device()
        return decisions

    def begin(self, step: AnyStep) -> None:
        """A step goes onto the device."""
        shape, why = step.shape, step.why
        assert shape.num_seqs == len(step.seqs) > 0
        assert shape.num_tokens == sum(s.num_tokens for s in step.seqs)
        assert 1 <= shape.threads <= self.device.threads
        assert step.predicted_ns > 0
        for s in step.seqs:
            assert s.request_id not in self.finished, "device time for a dead request"
        assert why.blocked in self.arrived or why.blocked == -1
        assert why.binding in {-1, why.blocked, *[s.request_id for s in step.seqs]}
        assert why.limit >= 0
        assert -MAX_NS <= why.slack_ns <= MAX_NS
        self.running[step.step_id] = step
        self.started[step.step_id] = self.now
        heapq.heappush(self._completions, (self.now + self.cost(step), step.step_id))

    def take(self, decision: Decision) -> None:
        """Look at a decision; `begin` and the books of requests are done."""
        raise NotImplementedError

    def complete(self, step_id: int, event: StepCompleted | None = None) -> None:
        """A running step ends, by default well and after its cost."""
        raise NotImplementedError

    # --- time

    def next_event_at(self) -> int:
        """When something happens by itself, or -1."""
        while self._completions and self._completions[0][1] not in self.running:
            heapq.heappop(self._completions)
        times = [t for t in (self.wake,) if t >= 0]
        if self._completions:
            times.append(self._completions[0][0])
        return min(times, default=-1)

    def advance(self) -> bool:
        """Move to the next completion or alarm; False when there is none."""
        at = self.next_event_at()
        if at < 0:
            return False
        self.now = max(self.now, at)
        if self._completions and self._completions[0][0] <= self.now:
            step_id = heapq.heappop(self._completions)[1]
            step = self.running[step_id]
            self.complete(step_id, self.outcome(step) if self.outcome else None)
        else:
            self.handle(Tick())
        return True

    def run_until(self, at: int) -> None:
        while 0 <= self.next_event_at() <= at:
            self.advance()
        self.now = max(self.now, at)

    def drain(self, limit: int = 100_000) -> None:
        """Run until nothing is left to do, and check that nothing was left behind."""
        for _ in range(limit):
            if not self.advance():
                break
        else:
            raise AssertionError("the core never comes to rest")
        self.check_idle()

    # --- checks

    def check_device(self) -> None:
        """Its limits, and progress: work waits only while the device is full."""
        used = sum(s.shape.threads for s in self.running.values())
        assert len(self.running) <= self.device.concurrent_steps
        assert used <= self.device.threads
        held = self.core.scheduler.wake_ns < MAX_NS  # to save energy
        if not held and any(lane.has_work for lane in self.core.lanes):
            full = len(self.running) == self.device.concurrent_steps or used == self.device.threads
            assert full, "work waits for a free device"

    def check_idle(self) -> None:
        assert self.finished.keys() == self.arrived.keys(), "a request was lost"
        assert self.core.num_requests == 0
        assert not self.core.scheduler.running
        for lane in self.core.lanes:
            for queue in (lane.queue.latency, lane.queue.throughput):
                assert (queue.num_seqs, queue.num_tokens, queue.sum_len_sq, len(queue)) == (0,) * 4
                assert queue.head() is None
                assert not queue.tenants.active
            assert lane.queue.next_alarm() == -1

    def reasons(self, ids: Sequence[int]) -> list[FinishReason]:
        return [self.finished[i].reason for i in ids]

    def latency_ms(self, request_id: int) -> float:
        return (self.finished_at[request_id] - self.arrived_at[request_id]) / MS
