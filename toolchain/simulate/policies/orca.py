"""Orca: iteration-level scheduling (Yu et al., OSDI 2022, algorithm 1).

Requests are selected in the order of arrival for every iteration, up to a maximum number.
One that is selected for the first time reserves cache slots for all the tokens that it may
ever have, and if there are not enough, it and everybody behind it waits. Nothing is preempted,
and a prompt runs whole in its first iteration, together with the others' next tokens.
"""

from __future__ import annotations

from runtime_py.batching import BoundBy
from toolchain.simulate.policies.iteration import IterationScheduler, Plan


class Orca(IterationScheduler):
    """One engine of one worker."""

    def plan(self) -> Plan:
        while self.waiting:
            if len(self.running) >= self.max_num_seqs:
                self.bound = BoundBy.SEQS
                break
            stream = self.waiting[0]
            if not self.grow(stream, stream.longest):
                self.bound = BoundBy.MEMORY
                break
            self.start(stream)
        return [(stream, stream.left) for stream in self.running]
