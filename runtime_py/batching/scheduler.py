"""Turns waiting work into steps whenever the device has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from runtime_py.batching.arbiter import Arbiter
from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.events import StepScheduled
from runtime_py.batching.lane import Lane
from runtime_py.batching.request import Request
from runtime_py.batching.types import BoundBy, DeviceSpec, SeqSlice, StepShape


class RunningStep(NamedTuple):
    """A step on the device.

    Attributes:
        members: (request, item) per row.
        is_retry: it holds one sequence of a failed step.
    """

    lane: Lane
    members: list[tuple[Request, int]]
    shape: StepShape
    predicted_ns: int
    is_retry: bool


class Scheduler:
    """Starts steps. There is no timer here: work starts when the device is free.

    Attributes:
        running: steps in flight by step id, oldest first.
    """

    def __init__(self, lanes: Sequence[Lane], device: DeviceSpec, config: SchedulerConfig) -> None:
        self.running: dict[int, RunningStep] = {}
        self._lanes = lanes
        self._device = device
        self._arbiter = Arbiter(device, config.step_target_ms)
        self._free_threads = device.threads
        self._next_step = 0

    def schedule(self, now_ns: int) -> list[StepScheduled]:
        """Start every step that the device has room for."""
        scheduled: list[StepScheduled] = []
        while self._free_threads > 0:
            slots = self._device.concurrent_steps - len(self.running)
            lane = self._arbiter.choose_lane(self._lanes, now_ns) if slots > 0 else None
            if lane is None:
                break
            scheduled.append(self._start(lane, slots, now_ns))
        return scheduled

    def finish(self, step_id: int) -> RunningStep | None:
        """Take a step off the device; None when it is not on it."""
        step = self.running.pop(step_id, None)
        if step is not None:
            self._free_threads += step.shape.threads
        return step

    def _start(self, lane: Lane, slots: int, now_ns: int) -> StepScheduled:
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
