"""Who may enter, and how much one step may hold."""

from __future__ import annotations

from typing import NamedTuple

from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.cost_model import CostModel
from runtime_py.batching.queue import ClassQueue
from runtime_py.batching.request import Request
from runtime_py.batching.types import NS_PER_MS, FinishReason, LaneSpec, StepShape


class Rejection(NamedTuple):
    """Why a request may not enter; the fields of its `RequestFinished`."""

    reason: FinishReason
    item: int
    value: int


class Admission:
    """The limits of one lane, and their answer to memory pressure.

    An allocation failure halves the token budget; after a number of good steps it doubles
    again, up to the configured limit. A sequence longer than a shrunken budget still runs,
    alone: only the configured limit can refuse it.

    Attributes:
        longest: tokens a step may hold at most: the longest sequence that runs whole.
        max_tokens: tokens a step may hold at present.
        max_seqs: sequences a step may hold.
    """

    def __init__(self, config: SchedulerConfig, lane: LaneSpec) -> None:
        self.longest = min(lane.max_tokens, config.max_batch_tokens or lane.max_tokens)
        self.max_tokens = self.longest
        self.max_seqs = min(lane.max_seqs, config.max_batch_seqs or lane.max_seqs)
        self._recovery_steps = config.memory_recovery_steps
        self._good_steps = 0

    def check(
        self,
        request: Request,
        queue: ClassQueue,
        cost: CostModel,
        threads: int,
        longest: int,
        now_ns: int,
    ) -> Rejection | None:
        """What is wrong with a newcomer, if anything.

        Args:
            longest: most tokens that an item may have.
        """
        for item, n in enumerate(request.num_tokens):
            if not 0 < n <= longest:
                return Rejection(FinishReason.NEVER_FITS, item, longest)
        count = len(request.num_tokens)
        if not 0 < count <= queue.policy.max_queue_size:
            return Rejection(FinishReason.NEVER_FITS, -1, queue.policy.max_queue_size)
        if 0 <= request.deadline_ns <= now_ns:
            return Rejection(FinishReason.DEADLINE, -1, 0)
        if not queue.has_room(count):
            wait = _time_to_make_room(queue, count, cost, threads)
            return Rejection(FinishReason.OVERLOADED, -1, wait)
        most_ns = queue.policy.max_queue_ms * NS_PER_MS
        if most_ns and cost.warm and queue.num_seqs:
            ahead = StepShape(queue.num_seqs, queue.num_tokens, queue.sum_len_sq, 0, threads)
            wait = cost.predict(ahead) - most_ns
            if wait > 0:
                return Rejection(FinishReason.OVERLOADED, -1, wait)
        return None

    def out_of_memory(self, shape: StepShape) -> None:
        """A step of this shape could not be allocated."""
        self.max_tokens = max(min(self.max_tokens, shape.num_tokens) // 2, 1)
        self._good_steps = 0

    def step_succeeded(self) -> None:
        if self.max_tokens < self.longest:
            self._good_steps += 1
            if self._good_steps >= self._recovery_steps:
                self._good_steps = 0
                self.max_tokens = min(2 * self.max_tokens, self.longest)


def _time_to_make_room(queue: ClassQueue, count: int, cost: CostModel, threads: int) -> int:
    """Nanoseconds of work ahead of the moment at which ``count`` more sequences fit."""
    leaving = queue.num_seqs + count - queue.policy.max_queue_size
    share = leaving / queue.num_seqs
    return cost.predict(
        StepShape(
            leaving,
            int(queue.num_tokens * share),
            int(queue.sum_len_sq * share),
            0,
            threads,
        )
    )
