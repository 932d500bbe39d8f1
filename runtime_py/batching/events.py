"""What goes into the core (events) and what comes out of it (decisions)."""

from __future__ import annotations

from typing import NamedTuple

from runtime_py.batching.types import (
    BoundBy,
    FinishReason,
    SeqSlice,
    StepOutcome,
    StepShape,
    TrafficClass,
)


class RequestArrived(NamedTuple):
    """A request of one or more sequences (items), all of which must run.

    Attributes:
        request_id: never used before in this core.
        lane: name of the lane it is for.
        num_tokens: tokens of each item, at least 1 each.
        traffic: its class.
        deadline_ns: when its result stops being useful, on the clock of ``now_ns``;
            -1 = never.
    """

    request_id: int
    lane: str
    num_tokens: tuple[int, ...]
    traffic: TrafficClass = TrafficClass.LATENCY
    deadline_ns: int = -1


class RequestAborted(NamedTuple):
    """Its owner no longer wants it. Unknown and finished ids are ignored."""

    request_id: int


class StepCompleted(NamedTuple):
    """A step ended. Unknown ids are ignored: the completion came too late to matter.

    Attributes:
        step_id: from its `StepScheduled`.
        outcome: how it ended.
        device_ns: time inside the backend; what the cost model learns from.
        non_finite: ascending rows whose result holds NaN or infinity.
    """

    step_id: int
    outcome: StepOutcome = StepOutcome.OK
    device_ns: int = 0
    non_finite: tuple[int, ...] = ()


class Tick(NamedTuple):
    """Time passed: the wake-up that an `Idle` asked for."""


Event = RequestArrived | RequestAborted | StepCompleted | Tick


class StepScheduled(NamedTuple):
    """Run this step now.

    Attributes:
        step_id: ascending from 0.
        lane: whose model runs.
        seqs: its rows in order.
        shape: what it will cost, threads included.
        predicted_ns: how long the cost model expects it to take.
        bound: what kept the batch from growing.
    """

    step_id: int
    lane: str
    seqs: tuple[SeqSlice, ...]
    shape: StepShape
    predicted_ns: int
    bound: BoundBy


class EmbeddingReady(NamedTuple):
    """Rows ``row .. row + num_items - 1`` of a step are items ``item ..`` of a request.

    Always follows the step's `StepCompleted` and precedes the request's
    `RequestFinished`, in the same list of decisions.
    """

    request_id: int
    item: int
    num_items: int
    step_id: int
    row: int


class RequestFinished(NamedTuple):
    """The end of a request: exactly one per request that arrived.

    Attributes:
        request_id: which.
        reason: `FinishReason.DONE`, or why it failed.
        item: the item to blame, or -1.
        step_id: the step in which it failed, or -1.
        value: NEVER_FITS: the limit that item exceeds; OVERLOADED: nanoseconds until the
            queue should have room; DEADLINE and TIMEOUT: nanoseconds it was in the core;
            otherwise 0.
    """

    request_id: int
    reason: FinishReason
    item: int = -1
    step_id: int = -1
    value: int = 0


class Idle(NamedTuple):
    """Nothing more to do until an event comes, or until ``wake_at_ns`` (-1 = no timer).

    The last decision of every call.
    """

    wake_at_ns: int


Decision = StepScheduled | EmbeddingReady | RequestFinished | Idle
