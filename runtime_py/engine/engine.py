"""One model's requests on a device."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Callable, Sequence

from runtime_py.batching import (
    CostProfile,
    DecoderStepScheduled,
    FinishReason,
    GenerationArrived,
    RequestAborted,
    RequestArrived,
    RequestFinished,
    SchedulerConfig,
    StepScheduled,
    TraceRecorder,
    TrafficClass,
)
from runtime_py.engine.device import Device
from runtime_py.engine.generate import GenerateRequest, generation_error
from runtime_py.engine.lanes import context_of, lane_of
from runtime_py.engine.request import EncodeRequest, error_of, fail
from runtime_py.engine.room import Room
from runtime_py.engine.stats import Counters, EngineStats, snapshot
from runtime_py.errors import Aborted, DeviceLost
from runtime_py.executors.base import ModelExecutor, SeqRow, Step, StepResult
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
        device: where it runs; config, recorder and clock are then the device's. None = a
            device made for it.
        alone: no other model comes to the device, which is closed with this one.
        name: of the model, on a shared device.
        share: weight of the model's bulk work against other models'.

    Raises:
        InvalidInput: the device takes no more models.
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
        device: Device | None = None,
        alone: bool = True,
        name: str = "",
        share: int = 1,
    ) -> None:
        self.limits = executor.limits
        self.spec = lane_of(self.limits, profile or CostProfile(), max_context, name, share)
        self._alone = alone
        self._device = device or Device(
            threads=self.limits.threads, config=config, trace=recorder, clock=clock
        )
        self._device.join(self)
        self._executor = executor
        self._row_bytes = 4 * width
        self._counters = Counters()
        self._room = Room(self._has_room)
        self._quiet: asyncio.Future[None] | None = None
        self._lost: DeviceLost | None = None
        self._num_requests = 0  # in the core, and of these ...
        self._num_aborted = 0  # ... those that it has yet to be rid of
        self._close_task: asyncio.Task[None] | None = None
        if self._alone:
            self._core = self._device.core  # nobody else will come

    # --- requests

    def submit(
        self,
        token_ids: Sequence[Sequence[int]],
        *,
        pool_skips: Sequence[int] | None = None,
        traffic: TrafficClass = TrafficClass.LATENCY,
        deadline_ns: int = -1,
        latency_target_ns: int = -1,
        tenant: str = "",
        first_index: int = 0,
    ) -> EncodeRequest:
        """Queue sequences; they start when the device has room.

        Args:
            token_ids: one or more sequences of at least one token.
            pool_skips: leading tokens of each that pooling leaves out; None = none.
            deadline_ns: on the engine's clock; -1 = never.
            latency_target_ns, tenant: as in `RequestArrived`.
            first_index: index of the first sequence in the caller's list, for messages.

        Raises:
            Aborted: the engine is closed.
            VoleryError: the engine cannot go on, for instance without room for its trace.
        """
        request = EncodeRequest(
            self._new_id(),
            self.spec.name,
            token_ids,
            pool_skips or [0] * len(token_ids),
            bytearray(len(token_ids) * self._row_bytes),
            self._device.loop.create_future(),
            self._device.clock(),
            first_index,
        )
        self._begin(request)
        lengths = tuple([len(ids) for ids in token_ids])
        self._device.post(
            RequestArrived(
                request.request_id,
                request.lane,
                lengths,
                traffic,
                deadline_ns,
                latency_target_ns,
                tenant,
            )
        )
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
        ttft_target_ns: int = -1,
        tpot_target_ns: int = -1,
        tenant: str = "",
        salt: str = "",
    ) -> GenerateRequest:
        """Queue a prompt; its tokens arrive in the request as they are made.

        Args:
            prompt: ids, at least one.
            stop_ids: ids that end a sample.
            decode: ids to text, for stop strings and streams.
            deadline_ns: on the engine's clock; -1 = never.
            ttft_target_ns, tpot_target_ns, tenant: as in `GenerationArrived`.
            salt: tenant of the prefix cache.

        Raises:
            Aborted, VoleryError: as `submit`.
        """
        request = GenerateRequest(
            self._new_id(),
            self.spec.name,
            prompt,
            options,
            tuple(stop_ids),
            decode,
            self._device.loop.create_future(),
            self._device.clock(),
        )
        self._begin(request)
        self._device.decoder.begin(request)
        self._device.post(
            GenerationArrived(
                request.request_id,
                request.lane,
                tuple(prompt),
                options.max_tokens,
                request.stop_ids,
                options.n,
                salt,
                traffic,
                deadline_ns,
                ttft_target_ns,
                tpot_target_ns,
                tenant,
            )
        )
        return request

    def _new_id(self) -> int:
        if self._close_task is not None:
            raise Aborted("the model is closed; load it again")
        return self._device.next_id()

    def _begin(self, request: EncodeRequest | GenerateRequest) -> None:
        self._device.requests[request.request_id] = request
        self._num_requests += 1

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
        if request.aborted or request.request_id not in self._device.requests:
            return
        request.aborted = True
        self._num_aborted += 1
        self._device.post(RequestAborted(request.request_id))
        fail(request, error or Aborted("the request was cancelled, or its model was closed"))

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
        config = self._device.config
        return min(config.latency.max_queue_size, config.throughput.max_queue_size)

    @property
    def max_context(self) -> int:
        """Most tokens of a decoder's sequence; 0 for an encoder."""
        return context_of(self.spec)

    def now_ns(self) -> int:
        """The engine's clock."""
        return self._device.clock()

    # --- the end

    async def close(self, *, drain: bool = False) -> None:
        """Stop, and close the executor. Idempotent; later calls wait for the first.

        Args:
            drain: finish what was submitted; otherwise it ends with `Aborted`. Steps on
                the device are always waited for.
        """
        if self._close_task is None:
            self._close_task = self._device.loop.create_task(self._close(drain))
            self._room.end()
        await asyncio.shield(self._close_task)

    async def _close(self, drain: bool) -> None:
        device = self._device
        if not drain:
            for request in list(device.requests.values()):
                if request.lane == self.spec.name:
                    self.abort(request)
        while not self._is_quiet():
            self._quiet = device.loop.create_future()
            await self._quiet
        self._executor.close()
        if self._alone:
            device.release()

    def _is_quiet(self) -> bool:
        """Nothing of this model is in the core or on the device."""
        device = self._device
        return not device.num_steps(self) and (device.broken or not self._num_requests)

    def stats(self) -> EngineStats:
        """Queue, batches and prediction quality, now and since the start."""
        device = self._device
        return snapshot(
            self._counters,
            device.lane(self),
            now_ns=device.clock(),
            window_ms=device.config.arrival_window_ms,
            running_steps=device.num_steps(self),
            requests=0 if device.broken else self._num_requests - self._num_aborted,
            late_completions=device.late_completions,
        )

    # --- what the device tells

    def start(self, scheduled: StepScheduled | DecoderStepScheduled) -> None:
        """Run a step of this model's lane."""
        step_id = scheduled.step_id
        self._counters.scheduled(scheduled.shape)
        if isinstance(scheduled, DecoderStepScheduled):
            step, failed = self._device.decoder.step(scheduled, self._device.clock())
            for request, error in failed:
                self.abort(request, error)
        else:
            step = self._encode(scheduled)
        completed = self._device.completed
        try:
            self._executor.submit(step, lambda result: completed(step_id, result))
        except Exception as e:
            completed(step_id, e)

    def landed(self, result: StepResult | BaseException) -> None:
        """A step of this model's lane ended."""
        if isinstance(result, StepResult):
            self._counters.device_ns += result.device_ns
        elif isinstance(result, DeviceLost):
            self._lost = result

    def _encode(self, scheduled: StepScheduled) -> Step:
        token_ids = array("i")
        rows: list[SeqRow] = []
        now_ns = self._device.clock()
        requests = self._device.requests
        for request_id, item, num_tokens in scheduled.seqs:
            request = requests[request_id]
            assert isinstance(request, EncodeRequest)
            rows.append(SeqRow(len(token_ids), num_tokens, 0, request.pool_skips[item]))
            token_ids.extend(request.token_ids[item])
            if request.queue_ns < 0:
                request.queue_ns = now_ns - request.arrival_ns
        return Step(token_ids, rows, scheduled.shape.threads)

    def finish(self, finished: RequestFinished, cause: BaseException | None) -> None:
        """The end of one of this model's requests."""
        self._num_requests -= 1
        self._num_aborted -= self._device.requests[finished.request_id].aborted
        counted = self._counters.finished
        counted[finished.reason] = counted.get(finished.reason, 0) + 1
        request = self._device.requests[finished.request_id]
        if request.future.done():
            return
        if finished.reason is FinishReason.DONE:
            request.future.set_result(None)
            if isinstance(request, GenerateRequest):
                request.wake()
            return
        if finished.step_id < 0:
            cause = self._lost
        if isinstance(request, GenerateRequest):
            fail(request, generation_error(request, finished, cause))
        else:
            fail(request, error_of(request, finished, cause))

    def changed(self) -> None:
        """The core has taken something in."""
        if self._device.broken:
            self._room.end()
        else:
            self._room.wake()
        if self._quiet is not None and not self._quiet.done() and self._is_quiet():
            self._quiet.set_result(None)

    def _has_room(self, num_seqs: int, traffic: TrafficClass) -> bool:
        lane = self._device.lane(self)
        coming = [
            len(e.num_tokens)
            for e in self._device.pending()
            if isinstance(e, RequestArrived) and e.lane == self.spec.name
        ]
        if lane is None:
            return num_seqs + sum(coming) <= self.max_queue_size
        return lane.queue.of(traffic).has_room(num_seqs + sum(coming))
