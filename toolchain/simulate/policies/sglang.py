"""SGLang's scheduler: prompts first.

When a request waits and fits, the next batch is a prefill batch, which holds no decodes;
decoding goes on when nobody can be added. A prompt longer than what is left of
``chunked_prefill_size`` is chunked, one at a time. Admission estimates memory: the tokens that
running requests may still generate count by ``new_token_ratio``, which decays while all goes
well. When memory runs out during decoding, the requests with the fewest generated tokens are
retracted (they compute everything again), and the ratio is raised. First come first served;
the cache-aware order is the same without common prefixes.
"""

from __future__ import annotations

from runtime_py.batching import BoundBy
from toolchain.simulate.policies.iteration import IterationScheduler, Plan, Stream
from toolchain.simulate.policies.setup import Setup

_INIT_RATIO = 0.7
_MIN_RATIO = 0.098
_DECAY_STEPS = 600
_CLIPPED = 4096  # most new tokens that the estimate takes seriously


class SGLang(IterationScheduler):
    """One scheduler process.

    Args:
        chunked_prefill_size: prompt tokens of a prefill batch.
        max_running_requests: most that run.
    """

    def __init__(
        self, setup: Setup, *, chunked_prefill_size: int, max_running_requests: int
    ) -> None:
        super().__init__(setup, max_num_seqs=max_running_requests)
        self._chunk_size = chunked_prefill_size
        self._ratio = _INIT_RATIO
        self._chunked: Stream | None = None

    def plan(self) -> Plan:
        return self._prefill() or self._decode() or self._prefill(alone=True)

    def _prefill(self, alone: bool = False) -> Plan:
        """The chunked prompt's next chunk, then new prompts.

        Args:
            alone: nothing runs; the first one starts whatever the estimate says.
        """
        plan: Plan = []
        budget = self._chunk_size
        room = self.free_blocks * self.block_size - self._expected_growth()
        if self._chunked is not None:
            stream, self._chunked = self._chunked, None
            count = min(stream.left, budget)
            if not self.grow(stream, stream.computed + count):
                self._chunked = stream
                return []
            plan.append((stream, count))
            budget -= count
            room -= count
            if count < stream.left:
                self._chunked = stream
        while self.waiting and budget > 0 and self._chunked is None:
            if len(self.running) >= self.max_num_seqs:
                self.bound = BoundBy.SEQS
                break
            stream = self.waiting[0]
            need = stream.left + min(stream.max_tokens - stream.generated, _CLIPPED)
            count = min(stream.left, budget)
            fits = need <= room or (alone and not plan)
            if not fits or not self.grow(stream, count):
                self.bound = BoundBy.MEMORY
                break
            self.start(stream)
            plan.append((stream, count))
            budget -= count
            room -= need
            if count < stream.left:
                self._chunked = stream
        return plan

    def _expected_growth(self) -> float:
        """Tokens that the running requests are expected to add."""
        return self._ratio * sum(min(s.max_tokens - s.generated, _CLIPPED) for s in self.running)

    def _decode(self) -> Plan:
        streams = [s for s in self.running if s.decodes]
        need = sum(self.blocks_for(s.known) - s.blocks for s in streams)
        if need > self.free_blocks:
            self.bound = BoundBy.MEMORY
            self._retract(streams)
        else:
            self._ratio = max(self._ratio - (_INIT_RATIO - _MIN_RATIO) / _DECAY_STEPS, _MIN_RATIO)
        plan: Plan = []
        for stream in streams:
            if stream in self.running and self.grow(stream, stream.known):
                plan.append((stream, 1))
        return plan

    def _retract(self, streams: list[Stream]) -> None:
        """Fewest generated tokens go first, of equals the longest prompt; one stays."""
        victims = sorted(streams, key=lambda s: (s.generated, -s.prompt_len))
        while len(victims) > 1:
            need = sum(self.blocks_for(s.known) - s.blocks for s in victims)
            if need <= self.free_blocks:
                break
            self.preempt(victims.pop(0))
        if self._chunked is not None and len(victims) == 1 and not self._fits(victims[0]):
            self.preempt(self._chunked)
            self._chunked = None
        total = sum(s.max_tokens for s in victims)
        done = sum(s.generated for s in victims)
        self._ratio = min((done + 20 * len(victims)) / max(total, 1), 1.0)

    def _fits(self, stream: Stream) -> bool:
        return self.blocks_for(stream.known) - stream.blocks <= self.free_blocks
