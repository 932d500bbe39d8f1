"""vLLM's scheduler (version 1) with chunked prefill.

Every step has a budget of tokens. Running requests come first, in the order in which they
started, a decode costing one token and a prompt as many as the budget leaves; when a running
request finds no free block, the one that started last is preempted and computes everything
again later. Then waiting requests start, first come first served, unless somebody was
preempted in this step. A request needs blocks only for the tokens of the step.

Prefix caching does nothing here: the workloads' prompts have nothing in common.
"""

from __future__ import annotations

from runtime_py.batching import BoundBy
from toolchain.simulate.policies.iteration import IterationScheduler, Plan
from toolchain.simulate.policies.setup import Setup


class VLLM(IterationScheduler):
    """One engine core.

    Args:
        max_num_batched_tokens: budget of a step.
        max_num_seqs: most running requests.
    """

    def __init__(self, setup: Setup, *, max_num_batched_tokens: int, max_num_seqs: int) -> None:
        super().__init__(setup, max_num_seqs=max_num_seqs)
        self._max_tokens = max(max_num_batched_tokens, self.max_num_seqs)

    def plan(self) -> Plan:
        plan: Plan = []
        budget = self._max_tokens
        preempted = False
        i = 0
        while i < len(self.running) and budget > 0:
            stream = self.running[i]
            count = min(stream.left, budget)
            while not self.grow(stream, stream.computed + count):
                victim = self.running[-1]
                self.preempt(victim)
                preempted = True
                if victim is stream:
                    break
            else:
                plan.append((stream, count))
                budget -= count
                i += 1
                continue
            break
        if preempted:
            self.bound = BoundBy.MEMORY
            return plan
        while self.waiting and budget > 0:
            if len(self.running) >= self.max_num_seqs:
                self.bound = BoundBy.SEQS
                break
            stream = self.waiting[0]
            count = min(stream.left, budget)
            if not self.grow(stream, count):
                self.bound = BoundBy.MEMORY
                break
            self.start(stream)
            plan.append((stream, count))
            budget -= count
        if self.bound is BoundBy.ALL and (self.waiting or budget <= 0):
            self.bound = BoundBy.TOKENS
        return plan
