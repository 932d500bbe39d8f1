"""The batching core: events in, decisions out, time as an integer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from runtime_py.batching.config import SchedulerConfig, TimeoutAction
from runtime_py.batching.decoder_lane import DecoderLane
from runtime_py.batching.decoder_results import DecoderResults
from runtime_py.batching.events import (
    Decision,
    EmbeddingReady,
    Event,
    GenerationArrived,
    Idle,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    SampleStopped,
    StepCompleted,
)
from runtime_py.batching.generation import Generation
from runtime_py.batching.lane import EncoderLane, Lane
from runtime_py.batching.request import Request
from runtime_py.batching.scheduler import RunningDecoderStep, RunningStep, Scheduler
from runtime_py.batching.stats import CoreStats
from runtime_py.batching.types import (
    MAX_NS,
    NS_PER_MS,
    DeviceSpec,
    FinishReason,
    LaneKind,
    LaneSpec,
    StepOutcome,
    TrafficClass,
)
from runtime_py.errors import InvalidInput


class Recorder(Protocol):
    """Sees everything that goes in and comes out; see `runtime_py.batching.trace`."""

    def start(
        self, lanes: Sequence[LaneSpec], device: DeviceSpec, config: SchedulerConfig
    ) -> None: ...

    def record(
        self, events: Sequence[Event], now_ns: int, decisions: Sequence[Decision]
    ) -> None: ...


class BatchingCore:
    """A deterministic state machine; the same calls give the same decisions.

    Args:
        lanes: the models that share the device.
        device: its threads and how many steps it runs at once.
        config: the knobs.
        recorder: sees every call, for replay.
    """

    def __init__(
        self,
        lanes: Sequence[LaneSpec],
        device: DeviceSpec | None = None,
        config: SchedulerConfig | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.device = device or DeviceSpec()
        self.config = config or SchedulerConfig()
        if self.device.threads < 1 or self.device.concurrent_steps < 1:
            raise InvalidInput(f"device is {self.device}, expected at least one thread and step")
        if self.device.step_threads < 0:
            raise InvalidInput(f"device is {self.device}, expected step_threads from 0")
        self.lanes = [_lane(spec, self.config) for spec in lanes]
        self._by_name = {lane.spec.name: i for i, lane in enumerate(self.lanes)}
        if not lanes or len(self._by_name) != len(lanes):
            raise InvalidInput("a core needs one or more lanes with different names")
        self.scheduler = Scheduler(self.lanes, self.device)
        self.stats = CoreStats()
        self._decoder = DecoderResults(self._finish)
        self._requests: dict[int, Request] = {}
        self._next_seq = 0
        self._now_ns = 0
        self._out: list[Decision] = []
        self._recorder = recorder
        if recorder is not None:
            recorder.start(lanes, self.device, self.config)

    @property
    def num_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    def handle(self, event: Event, now_ns: int) -> list[Decision]:
        """Take in one event at ``now_ns`` and decide."""
        return self.handle_all((event,), now_ns)

    def handle_all(self, events: Sequence[Event], now_ns: int) -> list[Decision]:
        """Take in events that happened together, in order, and decide once.

        Requests that arrive in one call can share their first step.

        Args:
            events: what happened.
            now_ns: the present; time that runs backwards stands still.

        Returns:
            Decisions in the order to carry them out; the last one is `Idle`.

        Raises:
            InvalidInput: an event that no driver may send: a request id that is in use,
                an unknown lane, a time beyond 2**52.
        """
        if not 0 <= now_ns <= MAX_NS:
            raise InvalidInput(f"now_ns is {now_ns}, expected 0 to {MAX_NS}")
        now_ns = self._now_ns = max(now_ns, self._now_ns)
        self._out = []
        out: list[Decision] = self._out
        for event in events:
            if isinstance(event, RequestArrived):
                self._arrived(event, now_ns)
            elif isinstance(event, StepCompleted):
                self._completed(event, now_ns)
            elif isinstance(event, GenerationArrived):
                self._generation_arrived(event, now_ns)
            elif isinstance(event, SampleStopped):
                self._stopped(event)
            elif isinstance(event, RequestAborted):
                request = self._requests.get(event.request_id)
                if request is not None:
                    self._finish(request, FinishReason.ABORTED)
        for lane in self.lanes:
            while (request := lane.queue.pop_alarm(now_ns)) is not None:
                self._look_at(request, lane, now_ns)
            self._shed_heads(lane, now_ns)
        for step in self.scheduler.schedule(now_ns):
            self.stats.started(step.shape.num_seqs, step.shape.num_tokens)
            out.append(step)
        out.append(Idle(self._next_alarm()))
        if self._recorder is not None:
            self._recorder.record(events, now_ns, out)
        return out

    # --- arrivals and alarms

    def _lane_for(self, event: RequestArrived | GenerationArrived, kind: LaneKind) -> int:
        index = self._by_name.get(event.lane, -1)
        if index < 0:
            raise InvalidInput(f"unknown lane {event.lane!r}, expected {list(self._by_name)}")
        if self.lanes[index].spec.kind is not kind:
            raise InvalidInput(f"the lane {event.lane!r} is not a lane of {kind} requests")
        if event.request_id in self._requests:
            raise InvalidInput(f"request id {event.request_id} is in use")
        return index

    def _arrived(self, event: RequestArrived, now_ns: int) -> None:
        index = self._lane_for(event, LaneKind.ENCODER)
        lane = self.lanes[index]
        request = Request(
            event.request_id,
            event.num_tokens,
            event.traffic,
            now_ns,
            event.deadline_ns,
            self._next_seq,
            event.tenant,
        )
        request.lane = index
        target_ns = _target(event.latency_target_ns, lane.config.latency_target_ms)
        self._enqueue(request, lane, lane.admission.longest, target_ns, now_ns)

    def _generation_arrived(self, event: GenerationArrived, now_ns: int) -> None:
        index = self._lane_for(event, LaneKind.DECODER)
        lane = self.lanes[index]
        assert isinstance(lane, DecoderLane)
        if event.max_tokens < 1 or event.samples < 1:
            raise InvalidInput(
                f"request {event.request_id} wants {event.samples} samples of "
                f"{event.max_tokens} tokens, expected at least 1 of each"
            )
        # The last token of a sequence is never computed, but must have a position
        longest = lane.max_context - 1
        max_tokens = max(min(event.max_tokens, lane.max_context - len(event.tokens)), 1)
        tpot_ns = max(_target(event.tpot_target_ns, lane.config.tpot_target_ms), 1)
        request = Generation(event, now_ns, self._next_seq, max_tokens, tpot_ns)
        request.lane = index
        if event.samples > lane.admission.max_seqs:
            self._next_seq += 1
            self._requests[request.request_id] = request
            self._finish(request, FinishReason.NEVER_FITS, value=lane.admission.max_seqs)
            return
        target_ns = _target(event.ttft_target_ns, lane.config.ttft_target_ms)
        self._enqueue(request, lane, longest, target_ns, now_ns)

    def _enqueue(
        self, request: Request, lane: Lane, longest: int, target_ns: int, now_ns: int
    ) -> None:
        """Let a newcomer wait for its first step, or turn it away."""
        self._next_seq += 1
        self._requests[request.request_id] = request
        if lane.lost:
            self._finish(request, FinishReason.DEVICE_LOST)
            return
        threads = self.device.threads
        queue = lane.queue.of(request.traffic)
        rejection = lane.admission.check(request, queue, lane.cost, threads, longest, now_ns)
        if rejection is not None:
            self._finish(request, rejection.reason, rejection.item, value=rejection.value)
            return
        lane.arrived(request, target_ns, now_ns)
        if not lane.has_work:
            # A lane that was idle has no claim on the time that others used meanwhile.
            busy = [other.share_ns for other in self.lanes if other.has_work]
            lane.share_ns = max(lane.share_ns, min(busy, default=0))
        alone_ns = lane.alone_ns(request, threads)
        request.due_ns = request.rank_ns = min(now_ns + target_ns + alone_ns, MAX_NS)
        if request.deadline_ns >= 0:
            request.due_ns = min(request.deadline_ns, MAX_NS)
            crowded = lane.latency_ns(threads) + alone_ns > request.deadline_ns - now_ns
            request.rank_ns = min(request.deadline_ns + (alone_ns if crowded else 0), MAX_NS)
        lane.queue.push(request, now_ns)
        self._arm(request, lane, now_ns)

    def _arm(self, request: Request, lane: Lane, now_ns: int) -> None:
        """Set the alarm at which `_look_at` can have something to do."""
        at_ns = lane.queue.timeout_ns(request)
        if request.deadline_ns >= 0:
            latest_ns = request.deadline_ns
            if request.num_waiting and lane.cost.warm:
                latest_ns -= self._needed_ns(request, lane)
            latest_ns = max(latest_ns, now_ns + 1)
            at_ns = latest_ns if at_ns < 0 else min(at_ns, latest_ns)
        if at_ns >= 0:
            lane.queue.set_alarm(request, max(at_ns, now_ns + 1))

    def _look_at(self, request: Request, lane: Lane, now_ns: int) -> None:
        """Shed a request that cannot be in time any more, or has waited too long.

        A newcomer that finds the device free runs whatever is predicted, so a cost model
        that has become too pessimistic always gets the sample that corrects it.
        """
        waited_ns = now_ns - request.arrival_ns
        if self._is_hopeless(request, lane, now_ns) or 0 <= request.deadline_ns <= now_ns:
            self._shed(request, lane, now_ns)
            return
        if 0 <= lane.queue.timeout_ns(request) <= now_ns:
            policy = lane.queue.of(request.traffic).policy
            if (
                policy.timeout_action is TimeoutAction.REJECT
                or request.traffic is TrafficClass.THROUGHPUT
            ):
                self._finish(request, FinishReason.TIMEOUT, value=waited_ns)
                return
            lane.queue.demote(request, now_ns)
        self._arm(request, lane, now_ns)

    def _needed_ns(self, request: Request, lane: Lane) -> int:
        """The time that the waiting items need alone, with the margin for a deadline."""
        return lane.with_margin(lane.alone_ns(request, self.device.threads))

    def _is_hopeless(self, request: Request, lane: Lane, now_ns: int) -> bool:
        return (
            request.deadline_ns >= 0
            and request.num_waiting > 0
            and lane.cost.warm
            and now_ns + self._needed_ns(request, lane) > request.deadline_ns
        )

    def _shed(self, request: Request, lane: Lane, now_ns: int) -> None:
        needed_ns = self._needed_ns(request, lane) if request.num_waiting else 0
        waited_ns = now_ns - request.arrival_ns
        self._finish(request, FinishReason.DEADLINE, value=waited_ns, needed_ns=needed_ns)

    def _shed_heads(self, lane: Lane, now_ns: int) -> None:
        """Shed what would be next and cannot be in time: its alarm was set with an older
        model, before the device slowed down. A newcomer is spared, see `_look_at`."""
        while (head := lane.queue.latency.head()) is not None:
            if head.arrival_ns == now_ns or not self._is_hopeless(head, lane, now_ns):
                return
            self._shed(head, lane, now_ns)

    def _next_alarm(self) -> int:
        wake_ns = self.scheduler.wake_ns
        for lane in self.lanes:
            at_ns = lane.queue.next_alarm()
            if 0 <= at_ns < wake_ns:
                wake_ns = at_ns
        return wake_ns if wake_ns < MAX_NS else -1

    # --- completions

    def _completed(self, event: StepCompleted, now_ns: int) -> None:
        step = self.scheduler.finish(event.step_id, event.device_ns)
        if step is None:
            self.stats.late_completions += 1
            return
        lane = step.lane
        if event.outcome is StepOutcome.OK:
            self.stats.ended(step.predicted_ns, event.device_ns)
            lane.predictions.ended(step.predicted_ns, event.device_ns)
            lane.cost.learn(step.shape, event.device_ns)
            lane.admission.step_succeeded()
        elif event.outcome is StepOutcome.OUT_OF_MEMORY:
            lane.admission.out_of_memory(step.shape)
        if isinstance(step, RunningDecoderStep):
            self._decoder.take(step, event, now_ns, self._out)
        elif event.outcome is StepOutcome.OK:
            self._deliver(step, event)
        elif event.outcome is StepOutcome.OUT_OF_MEMORY:
            self._give_back(step, event.step_id, now_ns)
        elif event.outcome is StepOutcome.FAILED:
            self._retry(step, event.step_id)
        if event.outcome is StepOutcome.LOST:
            self._lose(lane)

    def _stopped(self, event: SampleStopped) -> None:
        request = self._requests.get(event.request_id)
        if not isinstance(request, Generation) or not 0 <= event.sample < len(request.samples):
            return
        sample, lane = request.samples[event.sample], self.lanes[request.lane]
        # Before it forks, a sample also stands for its unborn twins, and has said nothing
        if sample.alive and request.forked and isinstance(lane, DecoderLane):
            self._decoder.stop(lane, sample, FinishReason.STOP, self._out)

    def _deliver(self, step: RunningStep, event: StepCompleted) -> None:
        members = step.members
        for row in event.non_finite:
            request, item = members[row]
            if request.alive:
                self._finish(request, FinishReason.NON_FINITE, item, event.step_id)
        row = 0
        while row < len(members):
            request, item = members[row]
            start, first = row, item
            row += 1
            while row < len(members) and members[row] == (request, first + row - start):
                row += 1
            if not request.alive:
                continue
            count = row - start
            request.num_done += count
            self._out.append(EmbeddingReady(request.request_id, first, count, event.step_id, start))
            if request.complete:
                self._finish(request, FinishReason.DONE)

    def _retry(self, step: RunningStep, step_id: int) -> None:
        """Every sequence of a failed step runs once more, alone; then it is the culprit."""
        for request, item in step.members:
            if not request.alive:
                continue
            if step.is_retry:
                self._finish(request, FinishReason.FAILED, item, step_id)
            else:
                step.lane.retries.append((request, item))

    def _give_back(self, step: RunningStep, step_id: int, now_ns: int) -> None:
        """The step was too large for memory; a single sequence cannot get smaller."""
        members = [(r, item) for r, item in step.members if r.alive]
        if len(step.members) == 1:
            for request, item in members:
                self._finish(request, FinishReason.OUT_OF_MEMORY, item, step_id)
            return
        by_request: dict[int, tuple[Request, list[int]]] = {}
        for request, item in members:
            by_request.setdefault(request.seq, (request, []))[1].append(item)
        for request, items in by_request.values():
            step.lane.queue.give_back(request, items, now_ns)

    def _lose(self, lane: Lane) -> None:
        lane.lost = True
        index = self.lanes.index(lane)
        for request in [r for r in self._requests.values() if r.lane == index]:
            self._finish(request, FinishReason.DEVICE_LOST)

    # --- the one end of a request

    def _finish(
        self,
        request: Request,
        reason: FinishReason,
        item: int = -1,
        step_id: int = -1,
        value: int = 0,
        needed_ns: int = 0,
    ) -> None:
        request.alive = False
        del self._requests[request.request_id]
        lane = self.lanes[request.lane]
        lane.queue.remove(request)
        if isinstance(request, Generation) and isinstance(lane, DecoderLane):
            for sample in request.samples:
                lane.residents.end(sample)
        finished = self.stats.finished
        finished[reason] = finished.get(reason, 0) + 1
        self._out.append(
            RequestFinished(request.request_id, reason, item, step_id, value, needed_ns)
        )


def _lane(spec: LaneSpec, config: SchedulerConfig) -> Lane:
    if spec.weight < 1:
        raise InvalidInput(f"the lane {spec.name!r} has weight {spec.weight}, expected at least 1")
    kind = DecoderLane if spec.kind is LaneKind.DECODER else EncoderLane
    return kind(spec, spec.config or config)


def _target(target_ns: int, default_ms: int) -> int:
    return min(target_ns, MAX_NS) if target_ns >= 0 else default_ms * NS_PER_MS
