"""A request on the engine's side: its tokens, its output, and the facts about it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runtime_py.batching import EmbeddingReady, FinishReason, RequestFinished, StepShape
from runtime_py.errors import (
    Aborted,
    DeadlineExceeded,
    DeviceLost,
    NeverFits,
    NonFinite,
    OutOfMemory,
    Overloaded,
    VoleryError,
)
from runtime_py.executors.base import StepResult

if TYPE_CHECKING:
    from runtime_py.engine.generate import GenerateRequest

NS_PER_MS = 1_000_000


class EncodeRequest:
    """Sequences that become vectors. `Engine.submit` makes it, `Engine.result` awaits it.

    Attributes:
        lane: the model's name on the device.
        token_ids: ids of each sequence.
        pool_skips: leading tokens of each sequence that pooling leaves out.
        output: f32 [len(token_ids), width], filled row by row.
        first_index: index of the first sequence in the caller's list, for messages.
        queue_ns: from arrival to the start of its first step.
        device_ns: time of the steps that carried it, inside the backend.
        steps: how many those were.
        batch_seqs, batch_tokens: the size of the largest of them.
        aborted: its owner does not want it any more.
    """

    __slots__ = (
        "aborted",
        "arrival_ns",
        "batch_seqs",
        "batch_tokens",
        "device_ns",
        "first_index",
        "future",
        "lane",
        "output",
        "pool_skips",
        "queue_ns",
        "request_id",
        "steps",
        "token_ids",
    )

    def __init__(
        self,
        request_id: int,
        lane: str,
        token_ids: Sequence[Sequence[int]],
        pool_skips: Sequence[int],
        output: bytearray,
        future: asyncio.Future[None],
        arrival_ns: int,
        first_index: int,
    ) -> None:
        self.request_id = request_id
        self.lane = lane
        self.aborted = False
        self.token_ids = token_ids
        self.pool_skips = pool_skips
        self.output = output
        self.future = future
        self.arrival_ns = arrival_ns
        self.first_index = first_index
        self.queue_ns = -1
        self.device_ns = 0
        self.steps = 0
        self.batch_seqs = 0
        self.batch_tokens = 0

    def wake(self) -> None:
        """Its reader waits for the future alone."""

    def take(self, ready: EmbeddingReady, result: StepResult, shape: StepShape) -> None:
        """Copy rows of a step that are this request's."""
        size = len(self.output) // len(self.token_ids)
        rows = result.output.cast("B")[ready.row * size : (ready.row + ready.num_items) * size]
        self.output[ready.item * size : (ready.item + ready.num_items) * size] = rows
        self.steps += 1
        self.device_ns += result.device_ns
        self.batch_seqs = max(self.batch_seqs, shape.num_seqs)
        self.batch_tokens = max(self.batch_tokens, shape.num_tokens)


def fail(request: EncodeRequest | GenerateRequest, error: BaseException) -> None:
    """Tell the owner of ``request`` how it ended, unless it knows."""
    if not request.future.done():
        request.future.set_exception(error)
        request.future.exception()  # an owner that stopped listening is not an error
        request.wake()


def error_of(
    request: EncodeRequest, finished: RequestFinished, cause: BaseException | None
) -> VoleryError | BaseException:
    """The typed error for a request that ended without a result.

    Args:
        cause: what the executor raised in the step that failed, if one did.
    """
    ms = finished.value / NS_PER_MS
    index = request.first_index + finished.item
    match finished.reason:
        case FinishReason.NEVER_FITS if finished.item >= 0:
            return NeverFits(
                f"texts[{index}] has {len(request.token_ids[finished.item])} tokens, a step holds "
                f"at most {finished.value}; raise max_batch_tokens or shorten the text"
            )
        case FinishReason.NEVER_FITS:
            return NeverFits(
                f"a request of {len(request.token_ids)} texts cannot wait in a queue of "
                f"{finished.value}; raise max_queue_size or send fewer texts"
            )
        case FinishReason.OVERLOADED:
            return Overloaded(
                f"the queue has no room for {len(request.token_ids)} more texts; "
                f"try again in about {ms:.0f} ms",
                retry_after_ms=ms,
            )
        case FinishReason.NON_FINITE:
            return NonFinite(
                f"texts[{index}]: the model computed NaN or infinity, expected finite numbers; "
                "check the exported weights"
            )
    return error_of_any(finished, cause, f"texts[{index}]")


def error_of_any(
    finished: RequestFinished, cause: BaseException | None, what: str
) -> VoleryError | BaseException:
    """The errors that do not depend on what was asked for; ``what`` names the culprit."""
    ms = finished.value / NS_PER_MS
    match finished.reason:
        case FinishReason.DEADLINE:
            return DeadlineExceeded(
                f"the request could not be finished by its deadline (it was here for {ms:.1f} ms); "
                "allow more time or send less work"
            )
        case FinishReason.TIMEOUT:
            return DeadlineExceeded(
                f"the request waited {ms:.1f} ms for its first step, more than its class allows; "
                "raise timeout_ms or send less work"
            )
        case FinishReason.ABORTED:
            return Aborted("the request was cancelled, or its model was closed")
        case FinishReason.OUT_OF_MEMORY:
            size = cause.bytes_requested if isinstance(cause, OutOfMemory) else 0
            return OutOfMemory(
                f"{what} alone needs more memory than the backend has "
                f"({size} bytes asked for); shorten it or load the model with a smaller limit",
                bytes_requested=size,
            )
        case FinishReason.DEVICE_LOST:
            detail = f" ({cause})" if cause is not None else ""
            return DeviceLost(f"the backend died{detail}; load the model again")
    return cause if cause is not None else VoleryError("the backend failed without a reason")
