"""A virtual device and clock around the real core, checking its promises on every call."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

from runtime_py.batching import (
    BatchingCore,
    Decision,
    DeviceSpec,
    EmbeddingReady,
    Event,
    FinishReason,
    Idle,
    LaneSpec,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    Tick,
    TraceRecorder,
    TrafficClass,
)
from runtime_py.batching.types import MAX_NS

MS = 1_000_000
LANE = "m/embed"


def linear_cost(step: StepScheduled) -> int:
    """A device like a small CPU: 0.2 ms a step, 0.1 ms a token on one thread."""
    shape = step.shape
    return 200_000 + 50_000 * (shape.threads - 1) + 100_000 * shape.num_tokens // shape.threads


class World:
    """Runs a core against virtual time.

    Attributes:
        now: nanoseconds.
        steps: every `StepScheduled` so far.
        started: step id -> when it started.
        finished: request id -> its `RequestFinished`; finished_at: when.
        ready: request id -> items delivered, in order of delivery.
        running: step id -> step.
    """

    def __init__(
        self,
        *,
        config: SchedulerConfig | None = None,
        device: DeviceSpec | None = None,
        lanes: Sequence[LaneSpec] = (LaneSpec(LANE, 512, 64),),
        cost: Callable[[StepScheduled], int] = linear_cost,
        outcome: Callable[[StepScheduled], StepCompleted | None] | None = None,
        lines: list[str] | None = None,
    ) -> None:
        self.recorder = TraceRecorder(None if lines is None else lines.append)
        self.core = BatchingCore(lanes, device, config, self.recorder)
        self.device = self.core.device
        self.now = 0
        self.cost = cost
        self.outcome = outcome
        self.steps: list[StepScheduled] = []
        self.started: dict[int, int] = {}
        self.finished: dict[int, RequestFinished] = {}
        self.finished_at: dict[int, int] = {}
        self.ready: dict[int, list[int]] = {}
        self.arrived: dict[int, RequestArrived] = {}
        self.arrived_at: dict[int, int] = {}
        self.running: dict[int, StepScheduled] = {}
        self.wake = -1
        self._completions: list[tuple[int, int]] = []
        self._next_id = 0

    def arrive(
        self,
        *lengths: int,
        traffic: TrafficClass = TrafficClass.LATENCY,
        deadline_ms: float | None = None,
        target_ms: float = -1,
        tenant: str = "",
        lane: str = LANE,
        send: bool = True,
    ) -> int:
        """A request arrives now; returns its id. ``send=False`` only makes the event."""
        deadline = -1 if deadline_ms is None else self.now + int(deadline_ms * MS)
        target = -1 if target_ms < 0 else int(target_ms * MS)
        event = RequestArrived(self._next_id, lane, lengths, traffic, deadline, target, tenant)
        self._next_id += 1
        self.arrived[event.request_id] = event
        self.arrived_at[event.request_id] = self.now
        if send:
            self.handle(event)
        return event.request_id

    def arrive_together(self, *lengths: int, **options: object) -> list[int]:
        """One single-text request per length, in one call of the core."""
        ids = [self.arrive(n, send=False, **options) for n in lengths]  # type: ignore[arg-type]
        self.handle(*[self.arrived[i] for i in ids])
        return ids

    def abort(self, request_id: int) -> None:
        self.handle(RequestAborted(request_id))

    def handle(self, *events: Event) -> list[Decision]:
        for event in events:
            if isinstance(event, StepCompleted):
                self.running.pop(event.step_id, None)
        decisions = self.core.handle_all(events, self.now)
        assert isinstance(decisions[-1], Idle)
        for decision in decisions:
            if isinstance(decision, StepScheduled):
                self._check_step(decision)
                self.steps.append(decision)
                self.running[decision.step_id] = decision
                self.started[decision.step_id] = self.now
                done_at = self.now + self.cost(decision)
                heapq.heappush(self._completions, (done_at, decision.step_id))
            elif isinstance(decision, EmbeddingReady):
                assert decision.request_id not in self.finished
                items = self.ready.setdefault(decision.request_id, [])
                new = range(decision.item, decision.item + decision.num_items)
                assert not set(items).intersection(new), "an item was delivered twice"
                items.extend(new)
            elif isinstance(decision, RequestFinished):
                assert decision.request_id not in self.finished, "a request ended twice"
                self.finished[decision.request_id] = decision
                self.finished_at[decision.request_id] = self.now
                if decision.reason is FinishReason.DONE:
                    count = len(self.arrived[decision.request_id].num_tokens)
                    assert sorted(self.ready[decision.request_id]) == list(range(count))
        self.wake = decisions[-1].wake_at_ns
        self._check_device()
        return decisions

    def next_event_at(self) -> int:
        """When something happens by itself, or -1."""
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
            _, step_id = heapq.heappop(self._completions)
            step = self.steps[step_id]
            event = self.outcome(step) if self.outcome else None
            self.handle(event or StepCompleted(step_id, StepOutcome.OK, self.cost(step)))
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

    def check_idle(self) -> None:
        assert self.finished.keys() == self.arrived.keys(), "a request was lost"
        assert self.core.num_requests == 0
        assert not self.core.scheduler.running
        for lane in self.core.lanes:
            assert lane.next_retry() is None
            for queue in (lane.queue.latency, lane.queue.throughput):
                assert (queue.num_seqs, queue.num_tokens, queue.sum_len_sq, len(queue)) == (0,) * 4
                assert queue.head() is None
            assert lane.queue.next_alarm() == -1

    def reasons(self, ids: Sequence[int]) -> list[FinishReason]:
        return [self.finished[i].reason for i in ids]

    def latency_ms(self, request_id: int) -> float:
        return (self.finished_at[request_id] - self.arrived_at[request_id]) / MS

    def _check_step(self, step: StepScheduled) -> None:
        lane = next(lane for lane in self.core.lanes if lane.spec.name == step.lane)
        shape = step.shape
        assert shape.num_seqs == len(step.seqs) > 0
        assert shape.num_tokens == sum(s.num_tokens for s in step.seqs)
        assert shape.sum_len_sq == sum(s.num_tokens**2 for s in step.seqs)
        config = lane.config
        assert shape.num_seqs <= min(lane.spec.max_seqs, config.max_batch_seqs or 10**9)
        assert shape.num_tokens <= min(lane.spec.max_tokens, config.max_batch_tokens or 10**9)
        assert 1 <= shape.threads <= self.device.threads
        assert len(set(step.seqs)) == len(step.seqs)
        for request_id, item, num_tokens in step.seqs:
            assert request_id not in self.finished, "device time for a dead request"
            assert self.arrived[request_id].num_tokens[item] == num_tokens
        assert step.predicted_ns > 0

    def _check_device(self) -> None:
        assert len(self.running) <= self.device.concurrent_steps
        assert sum(s.shape.threads for s in self.running.values()) <= self.device.threads
        held = self.core.scheduler.wake_ns < MAX_NS  # to save energy
        waiting = not held and any(lane.has_work for lane in self.core.lanes)
        if waiting:  # progress: work waits only while the device is full
            used = sum(s.shape.threads for s in self.running.values())
            assert len(self.running) == self.device.concurrent_steps or used == self.device.threads
