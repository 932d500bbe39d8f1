"""TensorRT-LLM's in-flight batching with its two capacity schedulers.

GUARANTEED_NO_EVICT (the default): a request starts only when the blocks that it and everybody
running may need up to their limits are there, so nobody is ever paused. MAX_UTILIZATION:
requests start when the blocks of the moment are there; when a running request then finds none,
the one that started last is paused and computed again. In both, iterations mix context and
generation phases, generation first, with at most ``max_num_tokens`` tokens and
``max_batch_size`` requests; contexts are chunked.
"""

from __future__ import annotations

from enum import StrEnum

from runtime_py.batching import BoundBy
from toolchain.simulate.policies.iteration import IterationScheduler, Plan
from toolchain.simulate.policies.setup import Setup


class CapacityPolicy(StrEnum):
    GUARANTEED_NO_EVICT = "guaranteed_no_evict"
    MAX_UTILIZATION = "max_utilization"


class TensorRTLLM(IterationScheduler):
    """One executor."""

    def __init__(
        self,
        setup: Setup,
        *,
        capacity: CapacityPolicy,
        max_num_tokens: int,
        max_batch_size: int,
    ) -> None:
        super().__init__(setup, max_num_seqs=max_batch_size)
        self._capacity = capacity
        self._max_tokens = max(max_num_tokens, self.max_num_seqs)

    def plan(self) -> Plan:
        if self._capacity is CapacityPolicy.MAX_UTILIZATION:
            self._utilize()
        else:
            self._guarantee()
        plan: Plan = []
        budget = self._max_tokens
        for stream in sorted(self.running, key=lambda s: not s.decodes):
            count = min(stream.left, budget)
            if count < 1:
                self.bound = BoundBy.TOKENS
                break
            plan.append((stream, count))
            budget -= count
        return plan

    def _guarantee(self) -> None:
        while self.waiting and self._seat():
            stream = self.waiting[0]
            if not self.grow(stream, stream.longest):
                self.bound = BoundBy.MEMORY
                break
            self.start(stream)

    def _utilize(self) -> None:
        paused = False
        i = 0
        while i < len(self.running):
            stream = self.running[i]
            if self.grow(stream, stream.known):
                i += 1
                continue
            victim = self.running[-1]
            self.preempt(victim)
            paused = True
        while self.waiting and not paused and self._seat():
            stream = self.waiting[0]
            if not self.grow(stream, stream.known):
                self.bound = BoundBy.MEMORY
                break
            self.start(stream)
        if paused:
            self.bound = BoundBy.MEMORY

    def _seat(self) -> bool:
        if len(self.running) < self.max_num_seqs:
            return True
        self.bound = BoundBy.SEQS
        return False
