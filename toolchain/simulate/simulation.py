"""The virtual clock: gives a policy its events and carries out its decisions.

This is a driver like the engine, only that time passes as fast as it can be computed: it
calls ``handle_all(events, now_ns)`` of the very `BatchingCore` that production uses, or of
the model of another system, and runs the steps on a simulated device.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from runtime_py.batching import (
    BoundBy,
    Decision,
    DecoderStepScheduled,
    EmbeddingReady,
    Event,
    Idle,
    RequestFinished,
    StepCompleted,
    StepScheduled,
    Tick,
    TokenEmitted,
    TrafficClass,
)
from runtime_py.errors import RequestError
from toolchain.simulate.device import Device
from toolchain.simulate.log import Log, RequestLog, StepLog
from toolchain.simulate.requests import FIRST_ID, STOP_ID
from toolchain.simulate.workloads import Workload

_REPORT_EVERY = 512


class Policy(Protocol):
    """A scheduler: events in, decisions out, the last of which is `Idle`."""

    def handle_all(self, events: Sequence[Event], now_ns: int) -> list[Decision]:
        """What `BatchingCore.handle_all` does."""
        ...


class Observer(Protocol):
    """Sees every call of a policy; the recorder of a trace is one."""

    def record(
        self, events: Sequence[Event], now_ns: int, decisions: Sequence[Decision]
    ) -> None: ...


class PolicyFault(RequestError):
    """A policy broke the rules that every scheduler keeps; the message says which."""


class _Running(NamedTuple):
    """A step on the device, and what `StepLog` will tell of its start."""

    step: StepScheduled | DecoderStepScheduled
    start_ns: int
    num_bulk: int
    num_waiting: int


class Simulation:
    """One run of one policy.

    Args:
        policy: the scheduler.
        workload: what arrives.
        device: what runs the steps.
        threads: of the device.
        concurrent_steps: most steps in flight.
        observers: see every call.
        until_ns: stop the clock here even if work is left.
    """

    def __init__(
        self,
        policy: Policy,
        workload: Workload,
        device: Device,
        *,
        threads: int = 1,
        concurrent_steps: int = 1,
        observers: Sequence[Observer] = (),
        until_ns: int = 2**52,
    ) -> None:
        self.log = Log()
        self._policy, self._workload, self._device = policy, workload, device
        self._threads, self._slots = threads, concurrent_steps
        self._observers = observers
        self._until_ns = until_ns
        self._live: dict[int, RequestLog] = {}
        self._items_left: dict[int, int] = {}
        self._running: list[tuple[int, int, _Running]] = []
        self._wake_ns = -1
        self._busy_threads = 0
        self._num_waiting = 0

    def run(self, progress: Callable[[int], None] | None = None) -> Log:
        """Run to the end.

        Args:
            progress: told the virtual time now and then.

        Raises:
            PolicyFault: the policy lost a request, ended one twice, or overcommitted the device.
        """
        log = self.log
        now_ns = 0
        while (now_ns := self._next_ns(now_ns)) >= 0 and now_ns <= self._until_ns:
            events = self._events(now_ns)
            decisions = self._policy.handle_all(events, now_ns)
            log.num_calls += 1
            for observer in self._observers:
                observer.record(events, now_ns, decisions)
            self._carry_out(decisions, now_ns)
            log.end_ns = now_ns
            if progress is not None and not log.num_calls % _REPORT_EVERY:
                progress(now_ns)
        if self._live and now_ns < 0:
            raise PolicyFault(
                f"{len(self._live)} requests never ended, the first is {min(self._live)}; "
                "expected every request to end"
            )
        return log

    def _next_ns(self, now_ns: int) -> int:
        """When something happens next, or -1."""
        next_ns = self._workload.next_ns()
        if self._running and not 0 <= next_ns <= self._running[0][0]:
            next_ns = self._running[0][0]
        if self._wake_ns >= 0 and not 0 <= next_ns <= self._wake_ns:
            next_ns = self._wake_ns
        return max(next_ns, now_ns) if next_ns >= 0 else -1

    def _events(self, now_ns: int) -> list[Event]:
        """What happens now: first what ended, then who arrives."""
        events: list[Event] = []
        running = self._running
        while running and running[0][0] <= now_ns:
            end_ns, _, ran = heapq.heappop(running)
            self._busy_threads -= ran.step.shape.threads
            events.append(self._completed(ran, end_ns))
        workload = self._workload
        while 0 <= workload.next_ns() <= now_ns:
            request = workload.pop()
            entry = RequestLog(request)
            self.log.requests.append(entry)
            self._live[request.request_id] = entry
            self._items_left[request.request_id] = len(request.num_tokens)
            self._num_waiting += 1
            events.append(request.event())
        return events or [Tick()]

    def _carry_out(self, decisions: Sequence[Decision], now_ns: int) -> None:
        last = decisions[-1] if decisions else None
        if not isinstance(last, Idle):
            raise PolicyFault(f"the last decision is {last!r}, expected Idle")
        self._wake_ns = last.wake_at_ns
        if 0 <= self._wake_ns <= now_ns:
            self._wake_ns = now_ns + 1
        for decision in decisions:
            if isinstance(decision, TokenEmitted):
                self._token(decision, now_ns)
            elif isinstance(decision, EmbeddingReady):
                self._items_left[decision.request_id] -= decision.num_items
            elif isinstance(decision, (StepScheduled, DecoderStepScheduled)):
                self._start(decision, now_ns)
            elif isinstance(decision, RequestFinished):
                self._finished(decision, now_ns)

    def _start(self, step: StepScheduled | DecoderStepScheduled, now_ns: int) -> None:
        self._busy_threads += step.shape.threads
        if len(self._running) >= self._slots or self._busy_threads > self._threads:
            raise PolicyFault(
                f"step {step.step_id} starts with {len(self._running)} in flight and needs "
                f"{self._busy_threads} threads in all; the device runs {self._slots} steps on "
                f"{self._threads} threads"
            )
        end_ns = now_ns + self._device.run_ns(step.lane, step.shape, now_ns)
        num_bulk = 0
        for seq in step.seqs:
            entry = self._live.get(seq.request_id)
            if entry is None:  # it ended meanwhile, and its work is wasted
                if not 0 <= seq.request_id < len(self.log.requests):
                    raise PolicyFault(f"step {step.step_id} holds request {seq.request_id}")
                continue
            if entry.first_step_ns < 0:
                entry.first_step_ns = now_ns
                self._num_waiting -= 1
            entry.num_steps += 1
            num_bulk += entry.request.traffic is TrafficClass.THROUGHPUT
        if isinstance(step, DecoderStepScheduled):
            self._watch_context(step)
        running = _Running(step, now_ns, num_bulk, self._num_waiting)
        heapq.heappush(self._running, (end_ns, step.step_id, running))

    def _watch_context(self, step: DecoderStepScheduled) -> None:
        """A sequence whose context shrank was preempted, whoever did it and however."""
        for seq in step.seqs:
            entry = self._live.get(seq.request_id)
            if entry is None:
                continue
            if seq.context_len < entry.computed:
                entry.preemptions += 1
                entry.recomputed += entry.computed - seq.context_len
            entry.computed = seq.context_len + seq.num_tokens

    def _completed(self, ran: _Running, end_ns: int) -> StepCompleted:
        step = ran.step
        sampled: tuple[int, ...] = ()
        if isinstance(step, DecoderStepScheduled):
            sampled = tuple([self._sample(s.request_id) for s in step.seqs if s.wanted])
        counts = [seq.num_tokens for seq in step.seqs]
        self.log.steps.append(
            StepLog(
                step.step_id,
                step.lane,
                ran.start_ns,
                end_ns,
                len(counts),
                ran.num_bulk,
                sum(counts),
                step.shape.num_tokens,
                max(counts, default=0),
                step.shape.threads,
                step.predicted_ns,
                BoundBy(step.bound),
                ran.num_waiting,
            )
        )
        return StepCompleted(step.step_id, device_ns=end_ns - ran.start_ns, sampled=sampled)

    def _sample(self, request_id: int) -> int:
        """The next token: nobody knows when the stop token comes but the workload."""
        entry = self._live.get(request_id)
        if entry is None or entry.num_tokens + 1 >= entry.request.output_tokens:
            return STOP_ID
        return FIRST_ID

    def _token(self, token: TokenEmitted, now_ns: int) -> None:
        entry = self._live[token.request_id]
        if entry.first_token_ns < 0:
            entry.first_token_ns = now_ns
        else:
            entry.max_gap_ns = max(entry.max_gap_ns, now_ns - entry.last_token_ns)
        entry.last_token_ns = now_ns
        entry.num_tokens += 1

    def _finished(self, end: RequestFinished, now_ns: int) -> None:
        entry = self._live.pop(end.request_id, None)
        if entry is None:
            raise PolicyFault(f"request {end.request_id} ended twice or never arrived")
        entry.reason, entry.finish_ns = end.reason, now_ns
        if entry.first_step_ns < 0:
            self._num_waiting -= 1
        left = self._items_left.pop(end.request_id)
        if entry.done and not entry.request.output_tokens and left:
            raise PolicyFault(f"request {end.request_id} is done, but {left} of its items are not")
        self._workload.finished(entry.request, now_ns)
