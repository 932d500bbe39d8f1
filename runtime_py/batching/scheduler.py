"""Turns waiting work into steps whenever the device has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runtime_py.batching.arbiter import Arbiter
from runtime_py.batching.decoder_lane import DecoderLane
from runtime_py.batching.encoder_batcher import retry_batch
from runtime_py.batching.events import DecoderStepScheduled, StepScheduled
from runtime_py.batching.generation import Sample
from runtime_py.batching.lane import EncoderLane, Lane
from runtime_py.batching.request import Request
from runtime_py.batching.types import (
    MAX_NS,
    DecoderSlice,
    DeviceSpec,
    SeqSlice,
    StepShape,
    Turn,
    Why,
)


class RunningStep(NamedTuple):
    """A step on the device.

    Attributes:
        members: (request, item) per row.
        charge_ns: what the lane's share of the device was charged for it.
        is_retry: it holds one sequence of a failed step.
    """

    lane: EncoderLane
    members: list[tuple[Request, int]]
    shape: StepShape
    predicted_ns: int
    charge_ns: int
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
    charge_ns: int
    is_retry: bool
    rows: list[int]
    num_wanted: int


_MOST_NS = 2**40  # of a step's time that is charged; keeps the products below 2**53
_SAME: tuple[int, ...] = ()
_new = tuple.__new__  # half the price of a NamedTuple's own constructor, once per sequence


class Scheduler:
    """Starts steps. There is no timer here: work starts when the device is free.

    Attributes:
        running: steps in flight by step id, oldest first.
    """

    def __init__(self, lanes: Sequence[Lane], device: DeviceSpec) -> None:
        self.running: dict[int, RunningStep | RunningDecoderStep] = {}
        self._lanes = lanes
        self._device = device
        self._arbiter = Arbiter(device)
        self._free_threads = device.threads
        self._next_step = 0

    @property
    def wake_ns(self) -> int:
        """When work that is held back to save energy has to start, or `MAX_NS`."""
        return self._arbiter.wake_ns if self._has_room else MAX_NS

    @property
    def _has_room(self) -> bool:
        return self._free_threads > 0 and len(self.running) < self._device.concurrent_steps

    def schedule(self, now_ns: int) -> list[StepScheduled | DecoderStepScheduled]:
        """Start every step that the device has room for."""
        scheduled: list[StepScheduled | DecoderStepScheduled] = []
        while self._has_room:
            choice = self._arbiter.choose_lane(self._lanes, now_ns)
            if choice is None:
                break
            lane, turn = choice
            if isinstance(lane, DecoderLane):
                scheduled.append(self._start_decoder(lane, turn, now_ns))
            else:
                assert isinstance(lane, EncoderLane)
                scheduled.append(self._start(lane, turn, now_ns))
        return scheduled

    def finish(self, step_id: int, device_ns: int) -> RunningStep | RunningDecoderStep | None:
        """Take a step off the device; None when it is not on it.

        Args:
            device_ns: the time it took, which replaces the predicted one in the lane's share.
        """
        step = self.running.pop(step_id, None)
        if step is not None:
            threads = step.shape.threads
            self._free_threads += threads
            step.lane.share_ns += self._charge(step.lane, device_ns, threads) - step.charge_ns
        return step

    def _charge(self, lane: Lane, ns: int, threads: int) -> int:
        """What ``ns`` on so many threads cost a lane: its part of the device, over weight."""
        return min(max(ns, 0), _MOST_NS) * threads // (self._device.threads * lane.spec.weight)

    def _begin(self, lane: Lane, shape: StepShape, predicted_ns: int) -> tuple[int, int]:
        """Take the device for a step; its number, and what its lane is charged."""
        step_id = self._next_step
        self._next_step += 1
        self._free_threads -= shape.threads
        charge_ns = self._charge(lane, predicted_ns, shape.threads)
        lane.share_ns += charge_ns
        return step_id, charge_ns

    def _start_decoder(self, lane: DecoderLane, turn: Turn, now_ns: int) -> DecoderStepScheduled:
        threads = self._arbiter.best_threads(lane, self._device.most_threads(self._free_threads))
        batch = lane.batcher.fill(lane.cost.line(threads), threads, now_ns)
        members, shape = batch.members, batch.shape
        predicted_ns = lane.cost.predict(shape)
        step_id, charge_ns = self._begin(lane, shape, predicted_ns)
        residents = lane.residents
        residents.step_id = step_id
        num_wanted = batch.num_streams
        rows = list(range(num_wanted))
        for sample, count in members[num_wanted:]:
            wanted = sample.left == count
            rows.append(num_wanted if wanted else -1)
            num_wanted += wanted
        seqs: list[DecoderSlice] = []
        for (sample, count), row in zip(members, rows, strict=True):
            seq = sample.kv
            kept, blocks = len(seq.blocks), _SAME
            if seq.changed < kept:
                kept, blocks = residents.kv.changes(sample.seq_id)
            sample.last_step = step_id
            request_id = sample.request.request_id
            fields = (request_id, sample.index, seq.computed, count, int(row >= 0), kept, blocks)
            seqs.append(_new(DecoderSlice, fields))
        self.running[step_id] = RunningDecoderStep(
            lane, members, shape, predicted_ns, charge_ns, batch.is_retry, rows, num_wanted
        )
        why = Why(
            turn,
            batch.overdue,
            batch.blocked,
            batch.binding,
            batch.limit,
            min(batch.spare_ns - predicted_ns, MAX_NS),
            lane.queue.num_seqs + len(lane.residents.preempted),
            lane.arrivals.expected(predicted_ns, now_ns),
        )
        return DecoderStepScheduled(
            step_id,
            lane.spec.name,
            tuple(seqs),
            tuple(batch.copies),
            shape,
            predicted_ns,
            batch.bound,
            why,
        )

    def _start(self, lane: EncoderLane, turn: Turn, now_ns: int) -> StepScheduled:
        retry = lane.next_retry()
        # Retries and fresh work take turns, so that one bad batch delays nobody for long.
        is_retry = retry is not None and not (lane.retried_last and lane.queue.num_seqs)
        lane.retried_last = is_retry
        if retry is not None and is_retry:
            lane.retries.popleft()
            batch = retry_batch(retry, self._device.most_threads(self._free_threads))
        else:
            slots = self._device.concurrent_steps - len(self.running)
            threads, limit_ns = self._arbiter.choose_threads(
                lane, self._free_threads, slots, now_ns
            )
            batch = lane.batcher.fill(
                lane.queue, lane.cost.line(threads), threads, limit_ns, lane.margin, now_ns
            )
        members, shape = batch.members, batch.shape
        predicted_ns = lane.cost.predict(shape)
        step_id, charge_ns = self._begin(lane, shape, predicted_ns)
        self.running[step_id] = RunningStep(lane, members, shape, predicted_ns, charge_ns, is_retry)
        seqs = tuple([SeqSlice(r.request_id, item, r.num_tokens[item]) for r, item in members])
        why = Why(
            turn,
            int(batch.overdue),
            batch.blocked,
            batch.binding,
            batch.limit,
            batch.due_ns - now_ns - predicted_ns if batch.due_ns >= 0 else MAX_NS,
            lane.queue.num_seqs,
            lane.arrivals.expected(predicted_ns, now_ns),
        )
        return StepScheduled(step_id, lane.spec.name, seqs, shape, predicted_ns, batch.bound, why)
