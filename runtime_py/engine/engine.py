"""The asyncio driver of the batching core.

The core decides, the executor computes, and this class carries messages between
them on the event loop that created it. Requests that are submitted in one turn of
the loop reach the core together, which costs no time and lets them share a step.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence

from runtime_py.batching import (
    BatchingCore,
    CostProfile,
    DecoderStepScheduled,
    DeviceSpec,
    EmbeddingReady,
    Event,
    FinishReason,
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
    TrafficClass,
)
from runtime_py.batching.decoder_lane import DecoderLane
from runtime_py.engine.decoder import DecoderDriver
from runtime_py.engine.generate import GenerateRequest, generation_error
from runtime_py.engine.lanes import DECODER, ENCODER, lane_of
from runtime_py.engine.request import EncodeRequest, error_of
from runtime_py.engine.room import Room
from runtime_py.engine.stats import EngineStats
from runtime_py.errors import Aborted, DeviceLost, OutOfMemory, VoleryError
from runtime_py.executors.base import ModelExecutor, SeqRow, SeqStatus, Step, StepResult
from runtime_py.generation.options import GenerateOptions
from runtime_py.generation.text import Decode


class Engine:
    """Runs requests of one model, batched, on one executor.

    Create it on the event loop that will use it; no method may be called from
    another thread.

    Args:
        executor: the loaded backend; `close` closes it too.
        width: f32 columns of an encoder's output row.
        config: the scheduler's knobs.
        profile: where the cost model starts.
        recorder: records every event and decision.
        clock: nanoseconds, never running backwards.
        max_context: of a decoder, the most tokens of a sequence; 0 = what its cache holds.
    """

    def __init__(
        self,
        executor: ModelExecutor,
        width: int,
        *,
        config: SchedulerConfig | None = None,
        profile: CostProfile | None = None,
        recorder: TraceRecorder | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        max_context: int = 0,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = executor
        self._row_bytes = 4 * width
        self._clock = clock
        limits = executor.limits
        lane = lane_of(limits, profile or CostProfile(), max_context)
        device = DeviceSpec(limits.threads, limits.concurrent_steps)
        self._core = BatchingCore([lane], device, config, recorder)
        self._lane = self._core.lanes[0]
        self._next_id = 0
        self._requests: dict[int, EncodeRequest | GenerateRequest] = {}
        self._decoder = DecoderDriver(self._requests)
        self._steps: dict[int, StepScheduled | DecoderStepScheduled] = {}
        self._results: dict[int, StepResult | BaseException] = {}
        self._events: list[Event] = []
        self._flush_handle: asyncio.Handle | None = None
        self._wake_handle: asyncio.TimerHandle | None = None
        self._wake_ns = -1
        self._device_ns = 0
        self._room = Room(self._has_room)
        self._quiet: list[asyncio.Future[None]] = []
        self._lost: BaseException | None = None
        self._broken: Exception | None = None
        self._close_task: asyncio.Task[None] | None = None

    # --- requests

    def submit(
        self,
        token_ids: Sequence[Sequence[int]],
        *,
        pool_skips: Sequence[int] | None = None,
        traffic: TrafficClass = TrafficClass.LATENCY,
        deadline_ns: int = -1,
        first_index: int = 0,
    ) -> EncodeRequest:
        """Queue sequences; they start when the device has room.

        Args:
            token_ids: one or more sequences of at least one token.
            pool_skips: leading tokens of each that pooling leaves out; None = none.
            deadline_ns: on the engine's clock; -1 = never.
            first_index: index of the first sequence in the caller's list, for messages.

        Raises:
            Aborted: the engine is closed.
            VoleryError: the engine cannot go on, for instance without room for its trace.
        """
        self._check_open()
        request = EncodeRequest(
            self._next_id,
            token_ids,
            pool_skips or [0] * len(token_ids),
            bytearray(len(token_ids) * self._row_bytes),
            self._loop.create_future(),
            self._clock(),
            first_index,
        )
        self._next_id += 1
        self._requests[request.request_id] = request
        lengths = tuple([len(ids) for ids in token_ids])
        self._post(RequestArrived(request.request_id, ENCODER, lengths, traffic, deadline_ns))
        return request

    def generate(
        self,
        prompt: Sequence[int],
        options: GenerateOptions,
        stop_ids: Sequence[int],
        decode: Decode,
        *,
        traffic: TrafficClass = TrafficClass.LATENCY,
        deadline_ns: int = -1,
        salt: str = "",
    ) -> GenerateRequest:
        """Queue a prompt; its tokens arrive in the request as they are made.

        Args:
            prompt: ids, at least one.
            stop_ids: ids that end a sample.
            decode: ids to text, for stop strings and streams.
            deadline_ns: on the engine's clock; -1 = never.
            salt: tenant of the prefix cache.

        Raises:
            Aborted, VoleryError: as `submit`.
        """
        self._check_open()
        request = GenerateRequest(
            self._next_id,
            prompt,
            options,
            tuple(stop_ids),
            decode,
            self._loop.create_future(),
            self._clock(),
        )
        self._next_id += 1
        self._requests[request.request_id] = request
        self._decoder.begin(request)
        self._post(
            GenerationArrived(
                request.request_id,
                DECODER,
                tuple(prompt),
                options.max_tokens,
                request.stop_ids,
                options.n,
                salt,
                traffic,
                deadline_ns,
            )
        )
        return request

    def _check_open(self) -> None:
        if self._close_task is not None:
            raise Aborted("the model is closed; load it again")
        if self._broken is not None:
            raise _broken_error(self._broken)

    async def result(self, request: EncodeRequest) -> bytearray:
        """Wait for the end of ``request`` and return its output, f32 [sequences, width].

        Cancelling the wait aborts the request: what has not started never runs.

        Raises:
            NeverFits, Overloaded, DeadlineExceeded, Aborted, NonFinite, OutOfMemory,
            DeviceLost: see `runtime_py.errors`.
        """
        try:
            await request.future
        except asyncio.CancelledError:
            self.abort(request)
            raise
        return request.output

    def abort(
        self, request: EncodeRequest | GenerateRequest, error: Exception | None = None
    ) -> None:
        """End ``request`` now; its owner gets ``error``, or else `Aborted`. Idempotent."""
        if self._requests.pop(request.request_id, None) is None:
            return
        self._post(RequestAborted(request.request_id))
        _fail(request, error or Aborted("the request was cancelled, or its model was closed"))

    async def wait_for_room(self, num_seqs: int, traffic: TrafficClass) -> None:
        """Wait until the queue would take ``num_seqs`` more sequences of this class.

        Raises:
            Aborted: the engine was closed meanwhile.
        """
        await self._room.wait(num_seqs, traffic)
        if self._close_task is not None:
            raise Aborted("the model is closed; load it again")

    @property
    def max_queue_size(self) -> int:
        """Most sequences that a single request can ever bring."""
        config = self._core.config
        return min(config.latency.max_queue_size, config.throughput.max_queue_size)

    @property
    def max_context(self) -> int:
        """Most tokens of a decoder's sequence; 0 for an encoder."""
        lane = self._core.lanes[0]
        return lane.max_context if isinstance(lane, DecoderLane) else 0

    def now_ns(self) -> int:
        """The engine's clock."""
        return self._clock()

    # --- the end

    async def close(self, *, drain: bool = False) -> None:
        """Stop, and close the executor. Idempotent; later calls wait for the first.

        Args:
            drain: finish what was submitted; otherwise it ends with `Aborted`. Steps on
                the device are always waited for.
        """
        if self._close_task is None:
            self._close_task = self._loop.create_task(self._close(drain))
            self._room.end()
        await asyncio.shield(self._close_task)

    async def _close(self, drain: bool) -> None:
        if not drain:
            for request in list(self._requests.values()):
                self.abort(request)
        while self._requests or self._steps or self._events:
            future = self._loop.create_future()
            self._quiet.append(future)
            await future
        if self._wake_handle is not None:
            self._wake_handle.cancel()
        self._executor.close()

    def stats(self) -> EngineStats:
        """Queue, batches and prediction quality, now and since the start."""
        core, lane = self._core.stats, self._lane
        residents = lane.residents if isinstance(lane, DecoderLane) else None
        return EngineStats(
            queued_seqs=lane.queue.num_seqs,
            queued_tokens=lane.queue.num_tokens,
            running_steps=len(self._steps),
            requests=len(self._requests),
            finished={reason.value: n for reason, n in core.finished.items()},
            steps=core.steps,
            seqs=core.seqs,
            tokens=core.tokens,
            batch_sizes=dict(core.batch_sizes),
            device_ms=self._device_ns / 1e6,
            prediction_error=lane.cost.error,
            arrivals_per_s=lane.arrivals.in_window(self._clock())
            * 1000
            / self._core.config.arrival_window_ms,
            late_completions=core.late_completions,
            running_seqs=len(residents.running) if residents else 0,
            recomputed_tokens=residents.recomputed if residents else 0,
            kv=residents.kv.stats if residents else None,
        )

    # --- events in

    def _post(self, event: Event) -> None:
        self._events.append(event)
        if self._flush_handle is None:
            self._flush_handle = self._loop.call_soon(self._flush)

    def _wake(self) -> None:
        self._wake_handle = None
        self._post(Tick())

    def _completed(self, step_id: int, result: StepResult | BaseException) -> None:
        self._results[step_id] = result
        if isinstance(result, StepResult):
            self._device_ns += result.device_ns
            statuses = result.statuses
            bad: tuple[int, ...] = ()
            if any(statuses):
                bad = tuple(i for i, s in enumerate(statuses) if s != SeqStatus.OK)
            step = self._steps.get(step_id)
            if isinstance(step, DecoderStepScheduled):
                ids = tuple([s.token_id for s in result.sampled])
                self._post(StepCompleted(step_id, StepOutcome.OK, result.device_ns, bad, ids))
                self._events += self._decoder.stops(step, result)
                return
            event = StepCompleted(step_id, StepOutcome.OK, result.device_ns, bad)
        elif isinstance(result, DeviceLost):
            self._lost = result
            event = StepCompleted(step_id, StepOutcome.LOST)
        elif isinstance(result, OutOfMemory):
            event = StepCompleted(step_id, StepOutcome.OUT_OF_MEMORY)
        else:
            event = StepCompleted(step_id, StepOutcome.FAILED)
        self._post(event)

    def _flush(self) -> None:
        self._flush_handle = None
        events, self._events = self._events, []
        if self._broken is None:
            try:
                self._advance(events)
            except Exception as e:
                self._break(e)
        for event in events:
            if isinstance(event, StepCompleted):
                self._results.pop(event.step_id, None)
                self._steps.pop(event.step_id, None)
        self._room.wake()
        if not (self._requests or self._steps or self._events):
            for quiet in self._quiet:
                if not quiet.done():
                    quiet.set_result(None)
            self._quiet.clear()

    def _advance(self, events: list[Event]) -> None:
        """Let the core decide, and carry its decisions out."""
        events += [RequestAborted(i) for i in self._cancelled(events)]
        now_ns = self._clock()
        for decision in self._core.handle_all(events, now_ns):
            if isinstance(decision, TokenEmitted):
                result = self._results[decision.step_id]
                assert isinstance(result, StepResult)
                self._decoder.emit(decision, result, now_ns)
            elif isinstance(decision, SampleFinished):
                self._decoder.finish(decision)
            elif isinstance(decision, DecoderStepScheduled):
                self._start_decoder(decision)
            elif isinstance(decision, StepScheduled):
                self._start(decision)
            elif isinstance(decision, EmbeddingReady):
                self._copy_rows(decision)
            elif isinstance(decision, RequestFinished):
                self._finish(decision)
            elif isinstance(decision, Idle):
                self._set_timer(decision.wake_at_ns)

    def _break(self, error: Exception) -> None:
        """A trace that cannot be written, or a bug: nobody may wait for ever because of it."""
        self._broken = error
        for request in self._requests.values():
            _fail(request, _broken_error(error))
        self._requests.clear()
        self._set_timer(-1)
        self._room.end()
        self._loop.call_exception_handler(
            {"message": "the engine cannot go on", "exception": error}
        )

    def _cancelled(self, events: Sequence[Event]) -> list[int]:
        """Newcomers whose owner was cancelled before anybody could look at them."""
        ids = []
        for event in events:
            if isinstance(event, RequestArrived | GenerationArrived):
                request = self._requests.get(event.request_id)
                if request is not None and request.future.cancelled():
                    ids.append(event.request_id)
        return ids

    # --- decisions out

    def _start(self, scheduled: StepScheduled) -> None:
        step_id = scheduled.step_id
        self._steps[step_id] = scheduled
        token_ids = array("i")
        rows: list[SeqRow] = []
        now_ns = self._clock()
        for request_id, item, num_tokens in scheduled.seqs:
            request = self._requests[request_id]
            assert isinstance(request, EncodeRequest)
            rows.append(SeqRow(len(token_ids), num_tokens, 0, request.pool_skips[item]))
            token_ids.extend(request.token_ids[item])
            if request.queue_ns < 0:
                request.queue_ns = now_ns - request.arrival_ns
        self._submit(step_id, Step(token_ids, rows, scheduled.shape.threads))

    def _start_decoder(self, scheduled: DecoderStepScheduled) -> None:
        self._steps[scheduled.step_id] = scheduled
        step, failed = self._decoder.step(scheduled, self._clock())
        for request, error in failed:
            self.abort(request, error)
        self._submit(scheduled.step_id, step)

    def _submit(self, step_id: int, step: Step) -> None:
        try:
            self._executor.submit(step, lambda result: self._from_any_thread(step_id, result))
        except Exception as e:
            self._completed(step_id, e)

    def _from_any_thread(self, step_id: int, result: StepResult | BaseException) -> None:
        try:
            self._loop.call_soon_threadsafe(self._completed, step_id, result)
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # a closed loop has nobody left to tell

    def _copy_rows(self, ready: EmbeddingReady) -> None:
        request = self._requests.get(ready.request_id)
        result = self._results[ready.step_id]
        if not isinstance(request, EncodeRequest) or not isinstance(result, StepResult):
            return
        size = self._row_bytes
        rows = result.output.cast("B")[ready.row * size : (ready.row + ready.num_items) * size]
        request.output[ready.item * size : (ready.item + ready.num_items) * size] = rows
        shape = self._steps[ready.step_id].shape
        request.steps += 1
        request.device_ns += result.device_ns
        request.batch_seqs = max(request.batch_seqs, shape.num_seqs)
        request.batch_tokens = max(request.batch_tokens, shape.num_tokens)

    def _finish(self, finished: RequestFinished) -> None:
        request = self._requests.pop(finished.request_id, None)
        if request is None or request.future.done():
            return
        if finished.reason is FinishReason.DONE:
            request.future.set_result(None)
            if isinstance(request, GenerateRequest):
                request.wake()
            return
        cause: BaseException | None = self._lost
        if finished.step_id >= 0:
            result = self._results[finished.step_id]
            cause = result if isinstance(result, BaseException) else None
        if isinstance(request, GenerateRequest):
            _fail(request, generation_error(request, finished, cause))
        else:
            _fail(request, error_of(request, finished, cause))

    def _set_timer(self, wake_ns: int) -> None:
        if self._wake_handle is not None:
            if wake_ns == self._wake_ns:
                return
            self._wake_handle.cancel()
            self._wake_handle = None
        self._wake_ns = wake_ns
        if wake_ns >= 0:
            delay = max(wake_ns - self._clock(), 0) / 1e9
            self._wake_handle = self._loop.call_later(delay, self._wake)

    def _has_room(self, num_seqs: int, traffic: TrafficClass) -> bool:
        coming = [len(e.num_tokens) for e in self._events if isinstance(e, RequestArrived)]
        return self._lane.queue.of(traffic).has_room(num_seqs + sum(coming))


def _fail(request: EncodeRequest | GenerateRequest, error: BaseException) -> None:
    if not request.future.done():
        request.future.set_exception(error)
        request.future.exception()  # an owner that stopped listening is not an error
        if isinstance(request, GenerateRequest):
            request.wake()


def _broken_error(error: Exception) -> VoleryError:
    return VoleryError(f"the engine cannot go on ({error!r}); load the model again")
