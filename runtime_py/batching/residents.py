"""The sequences of a decoder lane: who holds blocks, who lost them, who ended."""

from __future__ import annotations

from collections.abc import Sequence

from runtime_py.batching.generation import Generation, Sample
from runtime_py.batching.kv import KVManager


class Residents:
    """Admits, forks, preempts and ends the samples of one lane.

    A sample that ends while a step writes its blocks keeps them until that step is over.

    Attributes:
        step_id: the step on the device, -1 = none.
        kv: owns the blocks.
        running: samples that hold blocks or are about to, in order of admission.
        preempted: samples that lost theirs, by `Sample.key`.
        seats: sequences that the running samples stand for, unborn twins included.
        recomputed: tokens that preemptions made the lane compute again.
    """

    def __init__(self, kv: KVManager) -> None:
        self.kv = kv
        self.step_id = -1
        self.running: list[Sample] = []
        self.preempted: list[Sample] = []
        self.seats = 0
        self.recomputed = 0
        self._streams: list[Sample] | None = None
        self._next_seq_id = 0

    @property
    def streams(self) -> list[Sample]:
        """Those of the running samples that compute one token and get the next, in order.

        The same list as long as nobody joins or leaves them, which is most steps.
        """
        if self._streams is None:
            self._streams = [s for s in self.running if s.decodes and not s.suspect]
        return self._streams

    def changed(self) -> None:
        """Prompts have come further, or a step has failed: other samples may be streams."""
        self._streams = None

    def admit(self, request: Generation) -> Sample:
        """Start the prompt of a request that has no sample yet."""
        seq_id = self._new_id()
        self.kv.start(seq_id, request.prompt, request.salt)
        sample = Sample(request, 0, seq_id, self.kv.sequence(seq_id))
        request.samples.append(sample)
        self.running.append(sample)
        self.seats += sample.seats
        self.changed()
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
        self.changed()
        self.fork(sample)

    def preempt(self, sample: Sample) -> None:
        """Take the blocks of a sample that is in no step; it keeps its tokens."""
        self.recomputed += self.kv.preempt(sample.seq_id)
        sample.preemptions += 1
        sample.resident = False
        self.running.remove(sample)
        self.seats -= sample.seats
        self.changed()
        self.preempted.append(sample)
        self.preempted.sort(key=_key)

    def fork(self, sample: Sample) -> None:
        """Give birth to the twins once all but the last token of the prompt is computed.

        The last one is computed by each for itself, since each samples from its logits.
        """
        request = sample.request
        if request.forked or sample.left > 1:
            return
        self.changed()
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
            self.changed()
        else:
            self.preempted.remove(sample)
        if not trust:
            self.kv.discard(sample.seq_id)
        elif self.step_id < 0 or sample.last_step != self.step_id:
            self.kv.release(sample.seq_id)

    def landed(self, members: Sequence[tuple[Sample, int]]) -> None:
        """The step that wrote the members' blocks is over."""
        self.step_id = -1
        for sample, _ in members:
            if not sample.alive:
                self.kv.release(sample.seq_id)

    def _new_id(self) -> int:
        self._next_seq_id += 1
        return self._next_seq_id - 1


def _key(sample: Sample) -> tuple[int, int, int]:
    return sample.key
