"""What the end of a decoder's step means for the samples that were in it."""

from __future__ import annotations

from typing import Protocol

from runtime_py.batching.decoder_lane import DecoderLane
from runtime_py.batching.events import Decision, SampleFinished, StepCompleted, TokenEmitted
from runtime_py.batching.generation import Generation, Sample
from runtime_py.batching.scheduler import RunningDecoderStep
from runtime_py.batching.types import FinishReason, StepOutcome
from runtime_py.errors import InvalidInput

_MOST_CHARGE_NS = 10.0**12  # keeps accounts exact whatever a profile claims
_new = tuple.__new__  # half the price of a NamedTuple's own constructor, once per token


class Finish(Protocol):
    """Ends a request, with all of its samples."""

    def __call__(
        self,
        request: Generation,
        reason: FinishReason,
        item: int = -1,
        step_id: int = -1,
        value: int = 0,
    ) -> None: ...


class DecoderResults:
    """Turns completions into tokens and ends."""

    def __init__(self, finish: Finish) -> None:
        self._finish = finish

    def take(
        self, step: RunningDecoderStep, event: StepCompleted, now_ns: int, out: list[Decision]
    ) -> None:
        """A step ended, well or not.

        Raises:
            InvalidInput: the driver brings another number of tokens than were wanted.
        """
        lane = step.lane
        lane.landed_ns = now_ns
        if event.outcome is StepOutcome.OK and len(event.sampled) != step.num_wanted:
            raise InvalidInput(
                f"step {event.step_id} brought {len(event.sampled)} tokens, "
                f"expected {step.num_wanted}"
            )
        lane.residents.landed(step.members)
        if event.outcome is StepOutcome.OK:
            lane.batcher.learn(step.shape, event.device_ns)
            self._tokens(lane, step, event, out)
        elif event.outcome is StepOutcome.FAILED:
            self._suspect(step, event.step_id)
        elif event.outcome is StepOutcome.OUT_OF_MEMORY and step.shape.num_tokens == 1:
            sample = step.members[0][0]
            if sample.alive:
                reason = FinishReason.OUT_OF_MEMORY
                self._finish(sample.request, reason, sample.index, event.step_id)

    def stop(
        self, lane: DecoderLane, sample: Sample, reason: FinishReason, out: list[Decision]
    ) -> None:
        """End one sample, and its request with the last of them."""
        request = sample.request
        lane.residents.end(sample)
        out.append(SampleFinished(request.request_id, sample.index, reason))
        request.num_open -= 1
        if not request.num_open:
            self._finish(request, FinishReason.DONE)

    def _tokens(
        self, lane: DecoderLane, step: RunningDecoderStep, event: StepCompleted, out: list[Decision]
    ) -> None:
        residents, kv = lane.residents, lane.residents.kv
        if step.is_retry:
            step.members[0][0].suspect = 0
            residents.changed()
        for row in event.non_finite:
            sample = step.members[row][0]
            if sample.alive:
                residents.end(sample, trust=False)
                reason = FinishReason.NON_FINITE
                self._finish(sample.request, reason, sample.index, event.step_id)
        sampled, step_id = event.sampled, event.step_id
        queue = lane.queue
        line = lane.cost.line(step.shape.threads)
        charge_ns = int(min(line.seq + line.token, _MOST_CHARGE_NS)) if queue.num_seqs else 0
        for (sample, count), row in zip(step.members, step.rows, strict=True):
            if not sample.alive:
                continue
            if row < 0:
                kv.computed(sample.seq_id, count)
                residents.changed()
                residents.fork(sample)
                continue
            if count > 1:
                kv.computed(sample.seq_id, count - 1)
                residents.changed()
            seq, token = sample.kv, sampled[row]
            kv.advance(seq, token)
            request = sample.request
            if charge_ns:  # an account matters while somebody waits
                queue.of(request.traffic).tenants.charge(request.tenant, charge_ns)
            length = len(seq.tokens)
            fields = (request.request_id, sample.index, token, length - 1, step_id, row)
            out.append(_new(TokenEmitted, fields))
            if token in request.stop_ids:
                self.stop(lane, sample, FinishReason.STOP, out)
            elif length >= sample.end:
                self.stop(lane, sample, FinishReason.LENGTH, out)

    def _suspect(self, step: RunningDecoderStep, step_id: int) -> None:
        """Each sequence of a failed step runs once more, alone; then it is the culprit."""
        step.lane.residents.changed()
        for sample, count in step.members:
            if not sample.alive:
                continue
            if step.is_retry:
                step.lane.residents.end(sample, trust=False)
                self._finish(sample.request, FinishReason.FAILED, sample.index, step_id)
            else:
                sample.suspect = count
