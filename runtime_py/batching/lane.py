"""One model's work on the device: its queue and everything learned about it."""

from __future__ import annotations

from collections import deque

from runtime_py.batching.admission import Admission
from runtime_py.batching.arrival import ArrivalRate
from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.cost_model import CostModel
from runtime_py.batching.encoder_batcher import EncoderBatcher
from runtime_py.batching.queue import RequestQueue
from runtime_py.batching.request import Request
from runtime_py.batching.types import NS_PER_MS, LaneSpec, StepShape


class Lane:
    """What the lanes of encoders and decoders share.

    Attributes:
        share_ns: device time used so far over the lane's weight.
        lost: its backend died.
    """

    def __init__(self, spec: LaneSpec, config: SchedulerConfig) -> None:
        self.spec = spec
        self.queue = RequestQueue(config.latency, config.throughput)
        self.cost = CostModel(
            spec.profile,
            memory_steps=config.cost_memory_steps,
            warmup_steps=config.warmup_steps,
        )
        self.arrivals = ArrivalRate(config.arrival_window_ms * NS_PER_MS)
        self.admission = Admission(config, spec)
        self.share_ns = 0
        self.lost = False

    @property
    def has_work(self) -> bool:
        """A step could start now."""
        raise NotImplementedError

    def is_urgent(self, now_ns: int) -> bool:
        """It has latency work, a retry, or bulk work whose turn is overdue."""
        raise NotImplementedError

    def latest_start_ns(self, threads: int, now_ns: int) -> int:
        """When the urgent work must start to be done when it is due."""
        raise NotImplementedError

    def waiting(self, threads: int) -> StepShape:
        """Everything that could run now, as one step."""
        queue = self.queue
        return StepShape(queue.num_seqs, queue.num_tokens, queue.sum_len_sq, 0, threads)

    def alone_ns(self, request: Request, threads: int) -> int:
        """How long the waiting items of ``request`` take with the device to themselves."""
        return self.cost.predict(
            StepShape(request.num_waiting, request.waiting_tokens, request.waiting_sq, 0, threads)
        )


class EncoderLane(Lane):
    """Sequences that run once, whole.

    Attributes:
        retries: (request, item) of failed steps, each to run alone.
    """

    def __init__(self, spec: LaneSpec, config: SchedulerConfig) -> None:
        super().__init__(spec, config)
        self.batcher = EncoderBatcher(config, self.admission)
        self.retries: deque[tuple[Request, int]] = deque()
        self.retried_last = False

    @property
    def has_work(self) -> bool:
        return self.queue.num_seqs > 0 or self.next_retry() is not None

    def next_retry(self) -> tuple[Request, int] | None:
        """The first retry whose request still lives."""
        while self.retries and not self.retries[0][0].alive:
            self.retries.popleft()
        return self.retries[0] if self.retries else None

    def is_urgent(self, now_ns: int) -> bool:
        return (
            len(self.queue.latency) > 0
            or self.next_retry() is not None
            or self.batcher.overdue(self.queue, now_ns)
        )

    def latest_start_ns(self, threads: int, now_ns: int) -> int:
        latency = self.queue.latency
        head = latency.head()
        if head is None or self.next_retry() is not None:
            return now_ns
        shape = StepShape(latency.num_seqs, latency.num_tokens, latency.sum_len_sq, 0, threads)
        return head.due_ns - self.cost.predict(shape)
