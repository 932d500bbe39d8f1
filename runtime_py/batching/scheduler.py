"""Turns waiting work into steps whenever the device has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runtime_py.batching.arbiter import Arbiter
from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.decoder_lane import DecoderLane
from runtime_py.batching.events import DecoderStepScheduled, StepScheduled
from runtime_py.batching.generation import Sample
from runtime_py.batching.lane import EncoderLane, Lane
from runtime_py.batching.request import Request
from runtime_py.batching.types import BoundBy, DecoderSlice, DeviceSpec, SeqSlice, StepShape


class RunningStep(NamedTuple):
    """A step on the device.

    Attributes:
        members: (request, item) per row.
        is_retry: it holds one sequence of a failed step.
    """

    lane: EncoderLane
    members: list[tuple[Request, int]]
    shape: StepShape
    predicted_ns: int
    is_retry: bool


class RunningDecoderStep(NamedTuple):
    """A decoder's step on the device.

    Attributes:
        members: (sample, tokens) per row.
        rows: per member which of the wanted rows is its, or -1.
        num_wanted: how many rows are wanted.
    """

    lane: DecoderLane
    members: list[tuple[Sample, int]]
    shape: StepShape
    predicted_ns: int
    is_retry: bool
    rows: list[int]
    num_wanted: int


_SAME: tuple[int, ...] = ()


class Scheduler:
    """Starts steps. There is no timer here: work starts when the device is free.

    Attributes:
        running: steps in flight by step id, oldest first.
    """

    def __init__(self, lanes: Sequence[Lane], device: DeviceSpec, config: SchedulerConfig) -> None:
        self.running: dict[int, RunningStep | RunningDecoderStep] = {}
        self._lanes = lanes
        self._device = device
        self._arbiter = Arbiter(device, config.step_target_ms)
        self._free_threads = device.threads
        self._next_step = 0

    def schedule(self, now_ns: int) -> list[StepScheduled | DecoderStepScheduled]:
        """Start every step that the device has room for."""
        scheduled: list[StepScheduled | DecoderStepScheduled] = []
        while self._free_threads > 0:
            slots = self._device.concurrent_steps - len(self.running)
            lane = self._arbiter.choose_lane(self._lanes, now_ns) if slots > 0 else None
            if lane is None:
                break
            if isinstance(lane, DecoderLane):
                scheduled.append(self._start_decoder(lane, now_ns))
            else:
                assert isinstance(lane, EncoderLane)
                scheduled.append(self._start(lane, slots, now_ns))
        return scheduled

    def finish(self, step_id: int) -> RunningStep | RunningDecoderStep | None:
        """Take a step off the device; None when it is not on it."""
        step = self.running.pop(step_id, None)
        if step is not None:
            self._free_threads += step.shape.threads
        return step

    def _start_decoder(self, lane: DecoderLane, now_ns: int) -> DecoderStepScheduled:
        threads = self._arbiter.best_threads(lane, self._free_threads)
        members, copies, shape, bound, is_retry = lane.batcher.fill(
            lane.cost.line(threads), threads, now_ns
        )
        predicted_ns = lane.cost.predict(shape)
        step_id = self._next_step
        self._next_step += 1
        self._free_threads -= threads
        lane.in_flight = True
        num_wanted = 0
        rows: list[int] = []
        seqs: list[DecoderSlice] = []
        kv = lane.residents.kv
        for sample, count in members:
            seq = sample.kv
            context = seq.computed
            wanted = 1 if context + count == len(seq.tokens) else 0
            rows.append(num_wanted if wanted else -1)
            num_wanted += wanted
            kept, blocks = len(seq.blocks), _SAME
            if seq.changed < kept:
                kept, blocks = kv.changes(sample.seq_id)
            sample.in_flight = count
            sample.last_step = step_id
            seqs.append(
                DecoderSlice(
                    sample.request.request_id, sample.index, context, count, wanted, kept, blocks
                )
            )
        self.running[step_id] = RunningDecoderStep(
            lane, members, shape, predicted_ns, is_retry, rows, num_wanted
        )
        return DecoderStepScheduled(
            step_id, lane.spec.name, tuple(seqs), tuple(copies), shape, predicted_ns, bound
        )

    def _start(self, lane: EncoderLane, slots: int, now_ns: int) -> StepScheduled:
        retry = lane.next_retry()
        # Retries and fresh work take turns, so that one bad batch delays nobody for long.
        if retry is not None and not (lane.retried_last and lane.queue.num_seqs):
            lane.retried_last = True
            lane.retries.popleft()
            request, item = retry
            n = request.num_tokens[item]
            members = [retry]
            shape = StepShape(1, n, n * n, 0, self._free_threads)
            bound = BoundBy.RETRY
        else:
            lane.retried_last = False
            retry = None
            threads, limit_ns = self._arbiter.choose_threads(lane, self._free_threads, slots)
            members, shape, bound = lane.batcher.fill(
                lane.queue, lane.cost.line(threads), threads, limit_ns, now_ns
            )
        predicted_ns = lane.cost.predict(shape)
        step_id = self._next_step
        self._next_step += 1
        self._free_threads -= shape.threads
        self.running[step_id] = RunningStep(lane, members, shape, predicted_ns, retry is not None)
        seqs = tuple([SeqSlice(r.request_id, item, r.num_tokens[item]) for r, item in members])
        return StepScheduled(step_id, lane.spec.name, seqs, shape, predicted_ns, bound)
