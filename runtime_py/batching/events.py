"""What goes into the core (events) and what comes out of it (decisions)."""

from __future__ import annotations

from typing import NamedTuple

from runtime_py.batching.types import (
    BoundBy,
    DecoderSlice,
    FinishReason,
    SeqSlice,
    StepOutcome,
    StepShape,
    TrafficClass,
    Why,
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
        latency_target_ns: how long it may take beyond the time it needs alone; -1 = the
            lane's ``latency_target_ms``. Only orders: sheds nothing.
        tenant: whom its device time is charged to; tenants of a class share fairly.
    """

    request_id: int
    lane: str
    num_tokens: tuple[int, ...]
    traffic: TrafficClass = TrafficClass.LATENCY
    deadline_ns: int = -1
    latency_target_ns: int = -1
    tenant: str = ""


class GenerationArrived(NamedTuple):
    """A request for the continuation of a prompt.

    Attributes:
        request_id: never used before in this core.
        lane: name of a decoder lane.
        tokens: ids of the prompt, at least 1.
        max_tokens: most tokens of each sample, at least 1.
        stop_ids: ids that end a sample: the union of what the model and its owner name.
        samples: how many continuations; they share the prompt's blocks.
        salt: namespace of its tenant in the prefix cache.
        traffic, deadline_ns, tenant: as in `RequestArrived`.
        ttft_target_ns: how long the first token may take beyond what the prompt needs
            alone; -1 = the lane's ``ttft_target_ms``.
        tpot_target_ns: longest time between two tokens while others join; -1 = the lane's
            ``tpot_target_ms``.
    """

    request_id: int
    lane: str
    tokens: tuple[int, ...]
    max_tokens: int
    stop_ids: tuple[int, ...] = ()
    samples: int = 1
    salt: str = ""
    traffic: TrafficClass = TrafficClass.LATENCY
    deadline_ns: int = -1
    ttft_target_ns: int = -1
    tpot_target_ns: int = -1
    tenant: str = ""


class SampleStopped(NamedTuple):
    """The driver saw the end of a sample in its text. What has ended is ignored.

    Send it in the same call as the `StepCompleted` that brought the last token, and
    after it: the sample then is in no further step.
    """

    request_id: int
    sample: int


class RequestAborted(NamedTuple):
    """Its owner no longer wants it. Unknown and finished ids are ignored."""

    request_id: int


class StepCompleted(NamedTuple):
    """A step ended. Unknown ids are ignored: the completion came too late to matter.

    Attributes:
        step_id: from its `StepScheduled`.
        outcome: how it ended.
        device_ns: time inside the backend; what the cost model learns from.
        non_finite: ascending rows (sequences) whose result holds NaN or infinity.
        sampled: decoder: the token of every wanted row, in order; -1 for a row that is
            not finite.
    """

    step_id: int
    outcome: StepOutcome = StepOutcome.OK
    device_ns: int = 0
    non_finite: tuple[int, ...] = ()
    sampled: tuple[int, ...] = ()


class Tick(NamedTuple):
    """Time passed: the wake-up that an `Idle` asked for."""


Event = RequestArrived | GenerationArrived | SampleStopped | RequestAborted | StepCompleted | Tick


class StepScheduled(NamedTuple):
    """Run this step now.

    Attributes:
        step_id: ascending from 0.
        lane: whose model runs.
        seqs: its rows in order.
        shape: what it will cost, threads included.
        predicted_ns: how long the cost model expects it to take.
        bound: what kept the batch from growing.
        why: the rest of the explanation.
    """

    step_id: int
    lane: str
    seqs: tuple[SeqSlice, ...]
    shape: StepShape
    predicted_ns: int
    bound: BoundBy
    why: Why = Why()


class DecoderStepScheduled(NamedTuple):
    """Run this step of a decoder now.

    Attributes:
        step_id, lane, shape, predicted_ns, bound, why: as in `StepScheduled`.
        seqs: its rows in order.
        copies: (source, target) blocks to copy, in this order, before anything else.
    """

    step_id: int
    lane: str
    seqs: tuple[DecoderSlice, ...]
    copies: tuple[tuple[int, int], ...]
    shape: StepShape
    predicted_ns: int
    bound: BoundBy
    why: Why = Why()


class TokenEmitted(NamedTuple):
    """A sample has a token more.

    Attributes:
        request_id, sample: whose.
        token_id: the token; a stop token too.
        position: of the token in its sequence, from 0 at the prompt's first.
        step_id, row: the wanted row of the step that it comes from.
    """

    request_id: int
    sample: int
    token_id: int
    position: int
    step_id: int
    row: int


class SampleFinished(NamedTuple):
    """The end of one sample: ``STOP`` or ``LENGTH``. Follows its last token."""

    request_id: int
    sample: int
    reason: FinishReason


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
        value: NEVER_FITS: the limit that item exceeds (of a generation: item 0 the
            tokens that its prompt may have, item -1 the samples); OVERLOADED: nanoseconds until the
            queue should have room; DEADLINE and TIMEOUT: nanoseconds it was in the core;
            otherwise 0.
        needed_ns: DEADLINE: the time that it still needed by prediction, margin included,
            and no longer had; otherwise 0.
    """

    request_id: int
    reason: FinishReason
    item: int = -1
    step_id: int = -1
    value: int = 0
    needed_ns: int = 0


class Idle(NamedTuple):
    """Nothing more to do until an event comes, or until ``wake_at_ns`` (-1 = no timer).

    The last decision of every call.
    """

    wake_at_ns: int


Decision = (
    StepScheduled
    | DecoderStepScheduled
    | TokenEmitted
    | SampleFinished
    | EmbeddingReady
    | RequestFinished
    | Idle
)
