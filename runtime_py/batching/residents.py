"""The sequences of a decoder lane: who holds blocks, who lost them, who ended."""

from __future__ import annotations

from runtime_py.batching.generation import Generation, Sample
from runtime_py.batching.kv import KVManager


class Residents:
    """Admits, forks, preempts and ends the samples of one lane.

    A sample that ends while a step writes its blocks keeps them until that step is over.

    Attributes:
        kv: owns the blocks.
        running: samples that hold blocks or are about to, in order of admission.
        preempted: samples that lost theirs, by `Sample.key`.
        seats: sequences that the running samples stand for, unborn twins included.
        recomputed: tokens that preemptions made the lane compute again.
    """

    def __init__(self, kv: KVManager) -> None:
        self.kv = kv
        self.running: list[Sample] = []
        self.preempted: list[Sample] = []
        self.seats = 0
        self.recomputed = 0
        self._next_seq_id = 0

    def admit(self, request: Generation) -> Sample:
        """Start the prompt of a request that has no sample yet."""
        seq_id = self._new_id()
        self.kv.start(seq_id, request.prompt, request.salt)
        sample = Sample(request, 0, seq_id, self.kv.sequence(seq_id))
        request.samples.append(sample)
        self.running.append(sample)
        self.seats += sample.seats
        self.fork(sample)
        return sample

    def resume(self, sample: Sample) -> None:
        """Let a preempted sample begin again from its tokens."""
        self.preempted.remove(sample)
        computed = self.kv.resume(sample.seq_id)
        self.recomputed -= computed
        sample.resident = True
        self.running.append(sample)
        self.seats += sample.seats
        self.fork(sample)

    def preempt(self, sample: Sample) -> None:
        """Take the blocks of a sample that is in no step; it keeps its tokens."""
        self.recomputed += self.kv.preempt(sample.seq_id)
        sample.preemptions += 1
        sample.resident = False
        self.running.remove(sample)
        self.seats -= sample.seats
        self.preempted.append(sample)
        self.preempted.sort(key=_key)

    def fork(self, sample: Sample) -> None:
        """Give birth to the twins once all but the last token of the prompt is computed.

        The last one is computed by each for itself, since each samples from its logits.
        """
        request = sample.request
        if request.forked or sample.left > 1:
            return
        for index in range(1, len(request.num_tokens)):
            seq_id = self._new_id()
            self.kv.fork(sample.seq_id, seq_id)
            twin = Sample(request, index, seq_id, self.kv.sequence(seq_id))
            request.samples.append(twin)
            self.running.append(twin)
        request.forked = True

    def end(self, sample: Sample, *, trust: bool = True) -> None:
        """Free a sample's blocks, at once or when its step is over; a second time does nothing.

        Args:
            trust: its blocks may serve others that begin alike.
        """
        if not sample.alive:
            return
        sample.alive = False
        if sample.resident:
            self.running.remove(sample)
            self.seats -= sample.seats
        else:
            self.preempted.remove(sample)
        if not trust:
            self.kv.discard(sample.seq_id)
        elif not sample.in_flight:
            self.kv.release(sample.seq_id)

    def landed(self, sample: Sample) -> None:
        """The step that wrote the sample's blocks is over."""
        sample.in_flight = 0
        if not sample.alive:
            self.kv.release(sample.seq_id)

    def _new_id(self) -> int:
        self._next_seq_id += 1
        return self._next_seq_id - 1


def _key(sample: Sample) -> tuple[int, int, int]:
    return sample.key
