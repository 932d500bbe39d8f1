"""ExLlamaV2's dynamic generator: pages of 256 tokens, reserved before a job starts.

Jobs start in the order of arrival when there are pages for the whole prompt and every token
that they may generate, and a place in the batch. A pending job that does not fit may be
skipped by smaller ones behind it, at most ``max_skips`` times, then everybody waits for it.
An iteration first runs one chunk of one prompt by itself, for every job that is not prefilled
yet, and then one token for all that are. Nothing is preempted.
"""

from __future__ import annotations

from collections import deque

from runtime_py.batching import BoundBy
from toolchain.simulate.policies.iteration import IterationScheduler, Plan, Stream
from toolchain.simulate.policies.setup import Setup

PAGE_SIZE = 256


class ExLlamaV2(IterationScheduler):
    """One generator.

    Args:
        max_chunk_size: prompt tokens of one forward pass.
        max_batch_size: most active jobs.
        max_skips: how often a job that does not fit is overtaken.
    """

    def __init__(
        self, setup: Setup, *, max_chunk_size: int, max_batch_size: int, max_skips: int = 4
    ) -> None:
        super().__init__(setup, max_num_seqs=max_batch_size, block_size=PAGE_SIZE)
        self._chunk_size = max_chunk_size
        self._max_skips = max_skips
        self._skips: dict[int, int] = {}
        self._to_prefill: deque[Stream] = deque()

    def plan(self) -> Plan:
        """Prefill chunks of this iteration one by one, then the batch of decodes."""
        if not self._to_prefill:
            decodes: Plan = [(s, 1) for s in self.running if s.decodes]
            self._start_jobs()
            self._to_prefill.extend(s for s in self.running if not s.decodes)
            if decodes:
                return decodes
        if self._to_prefill:
            stream = self._to_prefill.popleft()
            return [(stream, min(stream.left, self._chunk_size))]
        return []

    def _start_jobs(self) -> None:
        for stream in list(self.waiting):
            if len(self.running) >= self.max_num_seqs:
                self.bound = BoundBy.SEQS
                return
            if self.grow(stream, stream.longest):
                self.waiting.remove(stream)
                self.running.append(stream)
                self._skips.pop(stream.request_id, None)
                continue
            self.bound = BoundBy.MEMORY
            skips = self._skips.get(stream.request_id, 0)
            if skips >= self._max_skips:
                return
            self._skips[stream.request_id] = skips + 1
