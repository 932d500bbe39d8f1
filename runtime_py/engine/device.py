"""The device that models share: the asyncio driver of one batching core.

The core decides, the executors compute, and this class carries messages between them on
the event loop that created it. Requests that are submitted in one turn of the loop reach
the core together, which costs no time and lets them share a step.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from runtime_py.batching import (
    BatchingCore,
    DecoderStepScheduled,
    EmbeddingReady,
    Event,
    GenerationArrived,
    Idle,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    SampleFinished,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    Tick,
    TokenEmitted,
    TraceRecorder,
)
from runtime_py.batching.lane import Lane
from runtime_py.engine.decoder import DecoderDriver
from runtime_py.engine.generate import GenerateRequest
from runtime_py.engine.hosted import Hosted, checked_config, checked_threads, device_spec
from runtime_py.engine.request import EncodeRequest, fail
from runtime_py.engine.trace_file import open_trace
from runtime_py.errors import Aborted, DeviceLost, InvalidInput, OutOfMemory, VoleryError
from runtime_py.executors.base import SeqStatus, StepResult


class Device:
    """Threads and a scheduler that several models share.

    Load models with ``rt.load(..., device=device)``: their requests are scheduled
    together, by urgency, and bulk work by device time over each model's ``share``. Models
    come before the first request, which fixes who shares the device; each may be closed
    at any time. Results are those of a model alone.

    Args:
        threads: threads of every model's backend, and of all steps in flight together;
            None = the usable cores, at most 8.
        config: knobs of the scheduler.
        trace: record every scheduling decision, to this file or recorder.
        clock: nanoseconds, never running backwards.

    Raises:
        InvalidInput: threads out of range, or a trace that cannot be written.
        RuntimeError: there is no running event loop.
    """

    def __init__(
        self,
        *,
        threads: int | None = None,
        config: SchedulerConfig | None = None,
        trace: str | os.PathLike[str] | TraceRecorder | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.threads = checked_threads(threads)
        self.config = checked_config(config)
        self.clock = clock
        self.requests: dict[int, EncodeRequest | GenerateRequest] = {}
        self.decoder = DecoderDriver(self.requests)
        self._recorder, self._close_trace = open_trace(trace)
        self._core: BatchingCore | None = None
        self._models: dict[str, Hosted] = {}
        self._lanes: dict[str, Lane] = {}
        self._next_id = 0
        self._steps: dict[int, tuple[Hosted, StepScheduled | DecoderStepScheduled]] = {}
        self._outputs: dict[int, StepResult] = {}
        self._errors: dict[int, BaseException] = {}
        self._events: list[Event] = []
        self._flush_handle: asyncio.Handle | None = None
        self._wake_handle: asyncio.TimerHandle | None = None
        self._wake_ns = -1
        self._broken: Exception | None = None
        self._closed = False

    # --- models

    def join(self, model: Hosted) -> None:
        """Take a model in; its lane gets a name of its own.

        Raises:
            InvalidInput: the device has begun, is closed, or belongs to another loop.
        """
        self.check_joinable()
        base, number = model.spec.name, 2
        while model.spec.name in self._models:
            model.spec = model.spec._replace(name=f"{base}#{number}")
            number += 1
        self._models[model.spec.name] = model

    def check_joinable(self) -> None:
        """Raises:
        InvalidInput: no model can be loaded onto the device any more.
        """
        if self._closed:
            raise InvalidInput("the device is closed; make another one")
        if self._core is not None:
            raise InvalidInput(
                "the device has begun to work; load all of its models before the first request"
            )
        if asyncio.get_running_loop() is not self.loop:
            raise InvalidInput("the device belongs to another event loop; make one on this loop")

    @property
    def core(self) -> BatchingCore:
        """The scheduler; made when it is first asked for, with the models of that moment."""
        if self._core is None:
            models = list(self._models.values())
            core = BatchingCore(
                [model.spec for model in models], device_spec(models), self.config, self._recorder
            )
            self._lanes = {lane.spec.name: lane for lane in core.lanes}
            self._core = core
        return self._core

    def lane(self, model: Hosted) -> Lane | None:
        """What the scheduler knows of a model; None before the first request."""
        return self._lanes.get(model.spec.name)

    @property
    def late_completions(self) -> int:
        """Steps that ended when nobody wanted them any more."""
        return self._core.stats.late_completions if self._core is not None else 0

    # --- requests

    def next_id(self) -> int:
        """A number for a new request.

        Raises:
            Aborted: the device is closed.
            VoleryError: it cannot go on, for instance without room for its trace.
        """
        if self._closed:
            raise Aborted("the device is closed; load the model again")
        if self._broken is not None:
            raise _broken_error(self._broken)
        self._next_id += 1
        return self._next_id - 1

    def post(self, event: Event) -> None:
        """Hand an event to the core, in this turn of the loop."""
        self._events.append(event)
        if self._flush_handle is None:
            self._flush_handle = self.loop.call_soon(self._flush)

    def pending(self) -> Sequence[Event]:
        """Events that the core has not seen yet."""
        return self._events

    def num_steps(self, model: Hosted) -> int:
        """A model's steps on the device now."""
        return sum([owner is model for owner, _ in self._steps.values()])

    def completed(self, step_id: int, result: StepResult | BaseException) -> None:
        """A step ended; from any thread."""
        try:
            self.loop.call_soon_threadsafe(self._completed, step_id, result)
        except RuntimeError:
            if not self.loop.is_closed():
                raise  # a closed loop has nobody left to tell

    # --- the end

    async def close(self) -> None:
        """Close every model on the device, then the trace. Idempotent."""
        self._closed = True
        await asyncio.gather(*[model.close() for model in self._models.values()])
        self.release()

    def release(self) -> None:
        """The part of `close` that comes when every model is closed."""
        self._closed = True
        if self._wake_handle is not None:
            self._wake_handle.cancel()
            self._wake_handle = None
        self._close_trace()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # --- events in

    def _wake(self) -> None:
        self._wake_handle = None
        self.post(Tick())

    def _completed(self, step_id: int, result: StepResult | BaseException) -> None:
        model, step = self._steps[step_id]
        model.landed(result)
        if isinstance(result, StepResult):
            self._outputs[step_id] = result
            statuses = result.statuses
            bad: tuple[int, ...] = ()
            if any(statuses):
                bad = tuple(i for i, s in enumerate(statuses) if s != SeqStatus.OK)
            if isinstance(step, DecoderStepScheduled):
                ids = tuple([s[0] for s in result.sampled])
                event = StepCompleted(step_id, StepOutcome.OK, result.device_ns, bad, ids)
                self._events += (event, *self.decoder.stops(step, result))
                self._flush()  # at once: streams wait for their next tokens
                return
            event = StepCompleted(step_id, StepOutcome.OK, result.device_ns, bad)
        else:
            self._errors[step_id] = result
            outcome = StepOutcome.FAILED
            if isinstance(result, DeviceLost):
                outcome = StepOutcome.LOST
            elif isinstance(result, OutOfMemory):
                outcome = StepOutcome.OUT_OF_MEMORY
            event = StepCompleted(step_id, outcome)
        self.post(event)

    def _flush(self) -> None:
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        events, self._events = self._events, []
        if self._broken is None:
            try:
                self._advance(events)
            except Exception as e:
                self._break(e)
        for event in events:
            if isinstance(event, StepCompleted):
                self._outputs.pop(event.step_id, None)
                self._errors.pop(event.step_id, None)
                self._steps.pop(event.step_id, None)
                self.decoder.forget(event.step_id)
        for model in self._models.values():
            model.changed()

    def _advance(self, events: list[Event]) -> None:
        """Let the core decide, and carry its decisions out."""
        events += [RequestAborted(i) for i in self._cancelled(events)]
        now_ns = self.clock()
        outputs, requests = self._outputs, self.requests
        decisions = self.core.handle_all(events, now_ns)
        woken = self.decoder.emit(decisions, outputs, now_ns)
        for decision in decisions:
            if type(decision) is TokenEmitted:
                continue  # by far the most
            if isinstance(decision, StepScheduled | DecoderStepScheduled):
                model = self._models[decision.lane]
                self._steps[decision.step_id] = model, decision
                model.start(decision)
            elif isinstance(decision, SampleFinished):
                self.decoder.finish(decision)
            elif isinstance(decision, EmbeddingReady):
                request = requests[decision.request_id]
                assert isinstance(request, EncodeRequest)
                shape = self._steps[decision.step_id][1].shape
                request.take(decision, outputs[decision.step_id], shape)
            elif isinstance(decision, RequestFinished):
                lane = requests[decision.request_id].lane
                self._models[lane].finish(decision, self._errors.get(decision.step_id))
                del requests[decision.request_id]
            elif isinstance(decision, Idle):
                self._set_timer(decision.wake_at_ns)
        for generation in woken:
            generation.wake()

    def _break(self, error: Exception) -> None:
        """A trace that cannot be written, or a bug: nobody may wait for ever because of it."""
        self._broken = error
        for request in self.requests.values():
            fail(request, _broken_error(error))
        self.requests.clear()
        self._set_timer(-1)
        self.loop.call_exception_handler({"message": "the engine cannot go on", "exception": error})

    @property
    def broken(self) -> bool:
        """Nothing runs on it any more."""
        return self._broken is not None

    def _cancelled(self, events: Sequence[Event]) -> list[int]:
        """Newcomers whose owner was cancelled before anybody could look at them."""
        ids = []
        for event in events:
            if isinstance(event, RequestArrived | GenerationArrived):
                request = self.requests.get(event.request_id)
                if request is not None and request.future.cancelled():
                    ids.append(event.request_id)
        return ids

    def _set_timer(self, wake_ns: int) -> None:
        if self._wake_handle is not None:
            if wake_ns == self._wake_ns:
                return
            self._wake_handle.cancel()
            self._wake_handle = None
        self._wake_ns = wake_ns
        if wake_ns >= 0:
            delay = max(wake_ns - self.clock(), 0) / 1e9
            self._wake_handle = self.loop.call_later(delay, self._wake)


def _broken_error(error: Exception) -> VoleryError:
    return VoleryError(f"the engine cannot go on ({error!r}); load the model again")
