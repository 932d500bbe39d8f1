"""One request's life, as the trace tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime_py.batching import (
    BoundBy,
    Decision,
    DecoderStepScheduled,
    EmbeddingReady,
    Event,
    GenerationArrived,
    RequestArrived,
    RequestFinished,
    SampleFinished,
    StepCompleted,
    StepScheduled,
    TokenEmitted,
    Turn,
    Why,
)
from runtime_py.batching.types import MAX_NS

_Step = StepScheduled | DecoderStepScheduled
_TURNS = {
    Turn.URGENT: "the most urgent lane",
    Turn.LATE: "a late lane with the least device time for its weight",
    Turn.SHARE: "the bulk lane with the least device time for its weight",
    Turn.SLACK: "bulk work, because the urgent lane can wait",
}
_WORDS = {
    "all": "everything that waited is in it",
    "seqs": "it holds as many sequences as a step may",
    "tokens": "its token budget is spent",
    "time": "its predicted time reached the target",
    "tpot": "its predicted time reached the TPOT target",
    "deadline": "one more sequence would have cost a member its deadline",
    "memory": "the key-value cache is full",
    "retry": "a sequence of a failed step, alone",
}


class Life:
    """Watches a run and remembers what concerns one request.

    Args:
        request_id: which.
    """

    def __init__(self, request_id: int) -> None:
        self.request_id = request_id
        self.lines: list[tuple[int, str]] = []
        self._arrival_ns = -1
        self._in_flight: dict[int, tuple[int, _Step]] = {}
        self._skipped = 0
        self._ended = False

    def record(self, events: Sequence[Event], now_ns: int, decisions: Sequence[Decision]) -> None:
        """One call of the policy."""
        for event in events:
            if isinstance(event, (RequestArrived, GenerationArrived)):
                if event.request_id == self.request_id:
                    self._arrival_ns = now_ns
                    self._say(now_ns, _arrival(event))
            elif isinstance(event, StepCompleted) and event.step_id in self._in_flight:
                start_ns, step = self._in_flight.pop(event.step_id)
                self._say(now_ns, _completed(step, now_ns - start_ns, event))
        if self._arrival_ns < 0 or self._ended:
            return
        for decision in decisions:
            self._decided(decision, now_ns)

    def text(self) -> Iterator[str]:
        """The life, a line per event, with the milliseconds since its arrival."""
        if self._arrival_ns < 0:
            yield f"request {self.request_id} never arrived"
            return
        yield f"request {self.request_id}, times in ms after its arrival"
        for at_ns, line in self.lines:
            yield f"{(at_ns - self._arrival_ns) / 1e6:>12,.3f}  {line}"

    def _say(self, at_ns: int, line: str) -> None:
        self.lines.append((at_ns, line))

    def _decided(self, decision: Decision, now_ns: int) -> None:
        mine = getattr(decision, "request_id", -1) == self.request_id
        if isinstance(decision, (StepScheduled, DecoderStepScheduled)):
            if any(seq.request_id == self.request_id for seq in decision.seqs):
                self._waited(now_ns)
                self._in_flight[decision.step_id] = (now_ns, decision)
                self._say(now_ns, self._scheduled(decision))
            else:
                self._skipped += 1
        elif mine and isinstance(decision, TokenEmitted):
            self._say(now_ns, f"token {decision.token_id} at position {decision.position}")
        elif mine and isinstance(decision, EmbeddingReady):
            items = f"item {decision.item}"
            if decision.num_items > 1:
                items = f"items {decision.item} to {decision.item + decision.num_items - 1}"
            self._say(now_ns, f"the vector of {items} is ready")
        elif mine and isinstance(decision, SampleFinished):
            self._say(now_ns, f"sample {decision.sample} ends: {decision.reason.value}")
        elif mine and isinstance(decision, RequestFinished):
            self._ended = True
            self._waited(now_ns)
            self._say(now_ns, f"ends: {decision.reason.value}{_value(decision)}")

    def _waited(self, now_ns: int) -> None:
        if self._skipped:
            many = "step started" if self._skipped == 1 else "steps started"
            self._say(now_ns, f"waited while {self._skipped} {many} without it")
            self._skipped = 0

    def _scheduled(self, step: _Step) -> str:
        mine = [seq for seq in step.seqs if seq.request_id == self.request_id]
        tokens = sum(seq.num_tokens for seq in mine)
        line = f"step {step.step_id}: {tokens} of its {step.shape.num_tokens} tokens"
        if len(mine) > 1:
            line += f" (items {', '.join(str(getattr(s, 'item', 0)) for s in mine)})"
        others = len(step.seqs) - len(mine)
        line += f", beside {others} other sequence{'' if others == 1 else 's'}"
        context = max((getattr(seq, "context_len", 0) for seq in mine), default=0)
        if context:
            line += f", after {context} tokens of context"
        if step.predicted_ns:
            line += f"; predicted {step.predicted_ns / 1e6:.2f} ms"
        line += f"; {_WORDS.get(step.bound.value, step.bound.value)}"
        return f"{line}{_why(step)}"


def _arrival(event: RequestArrived | GenerationArrived) -> str:
    traffic = event.traffic.name.lower()
    if isinstance(event, GenerationArrived):
        what = f"a prompt of {len(event.tokens)} tokens, at most {event.max_tokens} new ones"
    else:
        n = len(event.num_tokens)
        what = f"{n} text{'' if n == 1 else 's'} of {sum(event.num_tokens)} tokens"
    deadline = "no deadline"
    if event.deadline_ns >= 0:
        deadline = f"deadline at {event.deadline_ns / 1e6:,.3f} ms of the clock"
    return f"arrives: {what}, {traffic} class, {deadline}"


def _completed(step: _Step, ns: int, event: StepCompleted) -> str:
    line = f"step {step.step_id} ends ({event.outcome.value}) after {ns / 1e6:.2f} ms"
    if step.predicted_ns:
        line += f", {100 * (ns / step.predicted_ns - 1):+.0f}% off its prediction"
    return line


def _value(end: RequestFinished) -> str:
    if end.reason.value in ("deadline", "timeout"):
        text = f" after {end.value / 1e6:,.1f} ms in the queue"
        return text + (f", needing {end.needed_ns / 1e6:,.1f} ms more" if end.needed_ns else "")
    if end.reason.value == "overloaded" and end.value:
        return f", room in about {end.value / 1e6:,.1f} ms"
    return ""


def _why(step: _Step) -> str:
    """What the policy says about its choice; models of other systems say nothing."""
    why = getattr(step, "why", None)
    if not isinstance(why, Why) or why == Why():
        return ""
    parts = [_TURNS[why.turn]] if why.turn is not Turn.ONLY else []
    if why.overdue:
        parts.append("bulk work was overdue and went first")
    if why.blocked >= 0:
        parts.append(f"request {why.blocked} had to wait")
    if why.binding >= 0:
        parts.append(f"request {why.binding} set the limit")
    if why.limit:
        unit = step.bound in (BoundBy.TIME, BoundBy.DEADLINE) or step.bound.value == "tpot"
        parts.append(f"limit {why.limit / 1e6:,.2f} ms" if unit else f"limit {why.limit:,}")
    if why.slack_ns < MAX_NS:
        late = "late by" if why.slack_ns < 0 else "to spare"
        ms = f"{abs(why.slack_ns) / 1e6:,.1f} ms"
        parts.append(f"{late} {ms}" if why.slack_ns < 0 else f"{ms} {late}")
    parts.append(f"{why.waiting} left waiting, {why.expected} expected meanwhile")
    return "; " + "; ".join(parts)
