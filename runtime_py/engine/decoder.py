"""Carries a decoder's decisions out: block tables, sampling rows, tokens to their owners."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from runtime_py.batching import (
    Decision,
    DecoderStepScheduled,
    SampleFinished,
    SampleStopped,
    TokenEmitted,
)
from runtime_py.engine.generate import GenerateRequest, SampleState
from runtime_py.engine.request import EncodeRequest
from runtime_py.executors.base import SamplingRow, SeqRows, Step, StepResult


class DecoderDriver:
    """What the engine does for generations.

    Args:
        requests: the engine's requests by id; those that ended are gone.
    """

    def __init__(self, requests: Mapping[int, EncodeRequest | GenerateRequest]) -> None:
        self._requests = requests
        # Of the steps on the device: whose each wanted row is
        self._members: dict[int, list[tuple[GenerateRequest, SampleState]]] = {}
        self._stopping = 0  # requests with stop strings that have not ended

    def begin(self, request: GenerateRequest) -> None:
        """A request was submitted."""
        if request.options.stop:
            self._stopping += 1
            request.future.add_done_callback(self._ended)

    def _ended(self, _: object) -> None:
        self._stopping -= 1

    def step(
        self, scheduled: DecoderStepScheduled, now_ns: int
    ) -> tuple[Step, list[tuple[GenerateRequest, Exception]]]:
        """The executor's step, and the requests whose mask hook failed, with its error.

        Those run along without a mask; the caller ends them.
        """
        token_ids: list[int] = []
        words: list[int] = []
        tables: list[array[int]] = []
        wanted: list[int] = []
        sampling: list[SamplingRow] = []
        failed: list[tuple[GenerateRequest, Exception]] = []
        members: list[tuple[GenerateRequest, SampleState]] = []
        first = 0
        for request_id, index, context, count, is_wanted, kept, blocks in scheduled.seqs:
            request = self._requests[request_id]
            assert isinstance(request, GenerateRequest)
            sample = request.samples[index]
            table = sample.table
            if blocks:
                # A new array: the last step's may still be read by the backend
                table = sample.table = table[:kept]
                table.extend(blocks)
            words += (first, count, context, 0)
            tables.append(table)
            end = context + count
            length = len(request.prompt)
            if count == 1 and context >= length:
                token_ids.append(sample.tokens[context - length])
            else:
                token_ids.extend(request.prompt[context:end])
                if end > length:
                    token_ids.extend(sample.tokens[max(context - length, 0) : end - length])
            first += count
            if request.queue_ns < 0:
                request.queue_ns = now_ns - request.arrival_ns
                request.cached_tokens = context
            if is_wanted:
                wanted.append(first - 1)
                members.append((request, sample))
                if request.same_rows:
                    sampling.append(sample.row)
                    continue
                try:
                    sampling.append(request.sampling_row(sample, end))
                except Exception as e:
                    sampling.append(sample.row)
                    failed.append((request, e))
        self._members[scheduled.step_id] = members
        step = Step(
            array("i", token_ids),
            SeqRows(array("I", words)),
            scheduled.shape.threads,
            tables,
            scheduled.copies,
            wanted,
            sampling,
        )
        return step, failed

    def forget(self, step_id: int) -> None:
        """A step is over, and all that it brought was handed out."""
        self._members.pop(step_id, None)

    def stops(self, scheduled: DecoderStepScheduled, result: StepResult) -> list[SampleStopped]:
        """Which samples end because a stop string is in their text now."""
        events: list[SampleStopped] = []
        if not self._stopping:
            return events
        row = 0
        for request_id, index, _, _, is_wanted, _, _ in scheduled.seqs:
            if not is_wanted:
                continue
            request = self._requests.get(request_id)
            if request is not None:
                assert isinstance(request, GenerateRequest)
                if request.options.stop and request.look_for_stop(
                    request.samples[index], result.sampled[row].token_id
                ):
                    events.append(SampleStopped(request_id, index))
            row += 1
        return events

    def emit(
        self, decisions: Sequence[Decision], results: Mapping[int, StepResult], now_ns: int
    ) -> list[GenerateRequest]:
        """Hand every token among the decisions to its owner.

        Returns:
            Requests whose readers are to be woken. That takes longer than all else here, so
            it waits until the next step is on its way.
        """
        woken: list[GenerateRequest] = []
        last_id = -1
        for decision in decisions:
            if type(decision) is not TokenEmitted:
                continue
            _, _, token_id, _, step_id, row = decision
            if step_id != last_id:
                last_id = step_id
                members, sampled = self._members[step_id], results[step_id].sampled
            request, sample = members[row]
            sample.tokens.append(token_id)
            sample.fresh.append(sampled[row])
            sample.last_ns = now_ns
            if not sample.first_ns:
                sample.first_ns = now_ns
            if request.penalizes:
                sample.counts[token_id] += 1
            if request.waiter is not None:
                woken.append(request)
        return woken

    def finish(self, finished: SampleFinished) -> None:
        """A sample has said all."""
        request = self._requests.get(finished.request_id)
        if isinstance(request, GenerateRequest):
            request.samples[finished.sample].finish_reason = finished.reason.value
            request.wake()
