"""A decoder's work on the device: its queue, its sequences, its cache."""

from __future__ import annotations

from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.decoder_batcher import DecoderBatcher
from runtime_py.batching.kv import KVManager
from runtime_py.batching.lane import Lane
from runtime_py.batching.residents import Residents
from runtime_py.batching.types import NS_PER_MS, LaneSpec, StepShape, TrafficClass
from runtime_py.errors import InvalidInput


class DecoderLane(Lane):
    """Sequences that stay for many steps. One step at a time: each needs the tokens of
    the last.

    Attributes:
        residents: samples beyond the queue.
        landed_ns: when the last one ended.
        max_context: most tokens that a sequence can have.
    """

    def __init__(self, spec: LaneSpec, config: SchedulerConfig) -> None:
        super().__init__(spec, config)
        kv = KVManager(
            spec.kv_blocks,
            spec.block_size,
            model=spec.name,
            prefix_caching=config.prefix_caching,
        )
        room = spec.kv_blocks * spec.block_size
        if spec.max_context < 0 or spec.max_tokens < 1 or spec.max_seqs < 1:
            raise InvalidInput(f"the lane {spec.name!r} has limits below 1")
        self.max_context = min(spec.max_context or room, room)
        self.residents = Residents(kv)
        self.batcher = DecoderBatcher(config, self.admission, self.residents, self.queue)
        self.landed_ns = 0
        self._max_wait_ns = config.throughput_max_wait_ms * NS_PER_MS
        self.step_ns = config.tpot_target_ms * NS_PER_MS

    @property
    def has_work(self) -> bool:
        residents = self.residents
        if residents.step_id >= 0:
            return False
        return bool(residents.running or residents.preempted) or self.queue.num_seqs > 0

    @property
    def may_hold(self) -> bool:
        return not (self.residents.running or self.residents.preempted)

    def is_urgent(self, now_ns: int) -> bool:
        residents = self.residents
        return (
            len(self.queue.latency) > 0
            or any(
                s.suspect or s.request.traffic is TrafficClass.LATENCY for s in residents.running
            )
            or any(s.request.traffic is TrafficClass.LATENCY for s in residents.preempted)
            or now_ns - max(self.landed_ns, self.queue.throughput.served_ns) >= self._max_wait_ns
        )

    def latest_start_ns(self, threads: int, now_ns: int) -> int:
        start_ns = now_ns
        head = self.queue.latency.head()
        if self.residents.running:
            start_ns = self.landed_ns + self.step_ns
            if head is not None and head.due_ns < start_ns:
                start_ns = head.due_ns
        elif head is not None:
            start_ns = head.due_ns
        return start_ns - min(self.cost.predict(self.waiting(threads)), self.step_ns)

    def waiting(self, threads: int) -> StepShape:
        running = self.residents.running
        tokens = len(running) + self.queue.num_tokens
        context = 0
        for sample in running:
            context += len(sample.kv.tokens)
        tokens = min(tokens, self.admission.max_tokens)
        seqs = min(len(running) + self.queue.num_seqs, self.admission.max_seqs)
        return StepShape(seqs, tokens, context + self.queue.sum_len_sq, context, threads)
