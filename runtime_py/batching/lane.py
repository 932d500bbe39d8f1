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
from runtime_py.batching.stats import PredictionStats
from runtime_py.batching.types import MAX_NS, NS_PER_MS, LaneSpec, StepShape, TrafficClass

_TARGET_PARTS = 4  # a newcomer finds the device busy for at most this part of its target
_OUTLOOK = 4  # steps are short while somebody is expected within so many long ones
_TARGET_MEMORY = 16  # requests after which the tightest target seen is forgotten, about
_MOST_MARGIN = 0.5


class Lane:
    """What the lanes of encoders and decoders share.

    Attributes:
        config: its knobs.
        arrivals: sequences of both classes; latency_arrivals: of the latency class.
        share_ns: device time used so far over the lane's weight; that of steps on the
            device by prediction.
        lost: its backend died.
        predictions: how good those of its steps were.
    """

    def __init__(self, spec: LaneSpec, config: SchedulerConfig) -> None:
        self.spec = spec
        self.predictions = PredictionStats()
        self.config = config
        self.queue = RequestQueue(config)
        self.cost = CostModel(
            spec.profile,
            memory_steps=config.cost_memory_steps,
            warmup_steps=config.warmup_steps,
        )
        self.arrivals = ArrivalRate(config.arrival_window_ms * NS_PER_MS)
        self.latency_arrivals = ArrivalRate(config.arrival_window_ms * NS_PER_MS)
        self.admission = Admission(config, spec)
        self.share_ns = 0
        self.lost = False
        self.step_ns = config.step_target_ms * NS_PER_MS
        self._target_ns = config.latency_target_ms * NS_PER_MS
        self._overhead_percent = config.step_overhead_percent
        self._margin = config.deadline_margin_percent / 100

    def arrived(self, request: Request, target_ns: int, now_ns: int) -> None:
        """Learn from a request that was let in what the traffic is like.

        Args:
            target_ns: its latency target.
        """
        count = len(request.num_tokens)
        self.arrivals.add(count, now_ns)
        if request.traffic is not TrafficClass.LATENCY:
            return
        self.latency_arrivals.add(count, now_ns)
        if request.deadline_ns >= 0:
            target_ns = min(target_ns, request.deadline_ns - now_ns)
        if target_ns < self._target_ns:
            self._target_ns = target_ns
        else:
            self._target_ns += (target_ns - self._target_ns) // _TARGET_MEMORY

    def limit_ns(self, threads: int, now_ns: int) -> int:
        """How long the next step may take by prediction.

        While somebody waits for it, or will find it running, a step is only as long as
        efficiency demands: packing more into it hardly makes a token cheaper, but
        everything in it and behind it waits for its end.
        """
        limit_ns = self.step_ns
        if not self._overhead_percent or not self.cost.warm:
            return limit_ns
        outlook_ns = _OUTLOOK * limit_ns
        if len(self.queue.latency) or self.latency_arrivals.expected(outlook_ns, now_ns):
            short_ns = int(self.cost.line(threads).fixed * (100 / self._overhead_percent))
            return min(limit_ns, max(short_ns, self._target_ns // _TARGET_PARTS, 1))
        return limit_ns

    @property
    def margin(self) -> float:
        """The part of a prediction to keep free before a deadline."""
        return min(self.cost.error * self._margin, _MOST_MARGIN)

    def with_margin(self, ns: int) -> int:
        """A predicted time with its margin."""
        return ns + int(ns * self.margin)

    @property
    def has_work(self) -> bool:
        """A step could start now."""
        raise NotImplementedError

    @property
    def may_hold(self) -> bool:
        """Nothing but newcomers waits."""
        raise NotImplementedError

    def hold_until_ns(self, threads: int, now_ns: int) -> int:
        """When the work of a lane that saves energy has to start.

        Later than now only if nothing is under way, the next step would not be full, and
        arrivals are expected that will make it larger while every waiting request's slack
        still lasts.
        """
        queue = self.queue
        shape = self.waiting(threads)
        ns = self.cost.predict(shape)
        admission = self.admission
        if (
            not self.may_hold
            or shape.num_seqs >= admission.max_seqs
            or shape.num_tokens >= admission.max_tokens
            or ns >= self.step_ns
        ):
            return now_ns
        until_ns = MAX_NS
        if len(queue.latency):
            # Nobody is due before its rank less what it needs, which is at most `ns`
            until_ns = queue.latency.first_rank_ns() - ns - self.with_margin(ns)
        if len(queue.throughput):
            wait_ns = self.config.throughput_max_wait_ms * NS_PER_MS
            until_ns = min(until_ns, queue.throughput.served_ns + wait_ns)
        if until_ns <= now_ns or not self.arrivals.expected(until_ns - now_ns, now_ns):
            return now_ns
        return until_ns

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

    def latency_ns(self, threads: int) -> int:
        """How long the waiting work of the latency class takes; 0 when there is none."""
        latency = self.queue.latency
        if not latency.num_seqs:
            return 0
        return self.cost.predict(
            StepShape(latency.num_seqs, latency.num_tokens, latency.sum_len_sq, 0, threads)
        )

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

    @property
    def may_hold(self) -> bool:
        return self.next_retry() is None

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
        head = self.queue.latency.head()
        if head is None or self.next_retry() is not None:
            return now_ns
        return head.due_ns - self.latency_ns(threads)
