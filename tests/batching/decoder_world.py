"""A virtual device with a key-value cache around the real core.

The "model" is a rolling hash: the state of a position depends on every token up to it, a
step reads the state before its first token out of the cache, and the next token is a
function of the state. So a wrong block table, a lost copy, a stale prefix or a chunk
that ran twice gives other tokens, or is found at once by comparing all of the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from runtime_py.batching import (
    Decision,
    DecoderStepScheduled,
    DeviceSpec,
    FinishReason,
    GenerationArrived,
    LaneKind,
    LaneSpec,
    RequestArrived,
    RequestFinished,
    SampleFinished,
    SampleStopped,
    SchedulerConfig,
    StepCompleted,
    StepOutcome,
    StepScheduled,
    TokenEmitted,
    TrafficClass,
)
from runtime_py.batching.decoder_lane import DecoderLane
from tests.batching.virtual import MS, AnyStep, VirtualWorld

__all__ = ["LANE", "MS", "DecoderWorld", "alone", "decoder_cost"]
LANE = "m/generate"
VOCAB = 997


def state_after(state: int, token: int) -> int:
    return (state * 6364136223846793005 + token * 2 + 1) % 2**61


def next_token(state: int, sample: int) -> int:
    return (state // 1000 + 7919 * sample) % VOCAB


def alone(
    prompt: Sequence[int],
    max_tokens: int,
    stop_ids: Sequence[int] = (),
    sample: int = 0,
    context: int = 10**9,
) -> list[int]:
    """What the model says about ``prompt`` when nothing else exists."""
    state = 0
    for token in prompt:
        state = state_after(state, token)
    out: list[int] = []
    while len(out) < max_tokens and len(prompt) + len(out) < context:
        out.append(next_token(state, sample))
        if out[-1] in stop_ids:
            break
        state = state_after(state, out[-1])
    return out


def decoder_cost(step: DecoderStepScheduled | StepScheduled) -> int:
    """2 ms to read the weights, 0.4 ms a token, 0.5 us per cached token read."""
    shape = step.shape
    return 2_000_000 + 400_000 * shape.num_tokens + 500 * shape.kv_tokens


class DecoderWorld(VirtualWorld):
    """Runs a decoder lane, and encoder lanes beside it.

    Attributes:
        steps, encoder_steps: what was scheduled.
        tokens: (request, sample) -> emitted tokens; times: when each came.
        ends: (request, sample) -> how the sample ended.
        computed: tokens that steps ran, recomputed ones included.
    """

    def __init__(
        self,
        *,
        blocks: int = 64,
        block_size: int = 4,
        max_tokens: int = 64,
        max_seqs: int = 8,
        max_context: int = 0,
        config: SchedulerConfig | None = None,
        device: DeviceSpec | None = None,
        others: Sequence[LaneSpec] = (),
        cost: Callable[[AnyStep], int] = decoder_cost,
        outcome: Callable[[Any], StepCompleted | None] | None = None,
        lines: list[str] | None = None,
    ) -> None:
        lane = LaneSpec(
            LANE,
            max_tokens,
            max_seqs,
            kind=LaneKind.DECODER,
            kv_blocks=blocks,
            block_size=block_size,
            max_context=max_context,
        )
        super().__init__([lane, *others], device, config, cost, outcome, lines)
        found = self.core.lanes[0]
        assert isinstance(found, DecoderLane)
        self.lane = found
        self.kv = found.residents.kv
        self.size = block_size
        self.memory = [[-1] * block_size for _ in range(blocks)]
        self.steps: list[DecoderStepScheduled] = []
        self.encoder_steps: list[StepScheduled] = []
        self.tokens: dict[tuple[int, int], list[int]] = {}
        self.times: dict[tuple[int, int], list[int]] = {}
        self.ends: dict[tuple[int, int], FinishReason] = {}
        self.computed = 0
        self._tables: dict[tuple[int, int], list[int]] = {}

    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int = 8,
        *,
        stop_ids: Sequence[int] = (),
        samples: int = 1,
        salt: str = "",
        traffic: TrafficClass = TrafficClass.LATENCY,
        deadline_ms: float | None = None,
        ttft_ms: float = -1,
        tpot_ms: float = -1,
        tenant: str = "",
        send: bool = True,
    ) -> int:
        """A request arrives now; returns its id."""
        event = GenerationArrived(
            self.next_id,
            LANE,
            tuple(prompt),
            max_tokens,
            tuple(stop_ids),
            samples,
            salt,
            traffic,
            self.deadline(deadline_ms),
            -1 if ttft_ms < 0 else int(ttft_ms * MS),
            -1 if tpot_ms < 0 else int(tpot_ms * MS),
            tenant,
        )
        self.register(event)
        if send:
            self.handle(event)
        return event.request_id

    def encode(self, lane: str, *lengths: int, traffic: TrafficClass) -> int:
        event = self.register(RequestArrived(self.next_id, lane, lengths, traffic))
        self.handle(event)
        return event.request_id

    def stop(self, request_id: int, sample: int = 0) -> None:
        self.handle(SampleStopped(request_id, sample))

    def begin(self, step: AnyStep) -> None:
        if isinstance(step, DecoderStepScheduled):
            self._check_step(step)
            self.steps.append(step)
        else:
            self.encoder_steps.append(step)
        super().begin(step)

    def take(self, decision: Decision) -> None:
        if isinstance(decision, TokenEmitted):
            key = decision.request_id, decision.sample
            assert decision.request_id not in self.finished
            assert key not in self.ends
            made = self.tokens.setdefault(key, [])
            made.append(decision.token_id)
            self.times.setdefault(key, []).append(self.now)
            event = self.arrived[decision.request_id]
            assert isinstance(event, GenerationArrived)
            assert decision.position == len(event.tokens) + len(made) - 1
        elif isinstance(decision, SampleFinished):
            key = decision.request_id, decision.sample
            assert key not in self.ends, "a sample ended twice"
            self.ends[key] = decision.reason
        elif isinstance(decision, RequestFinished):
            event = self.arrived[decision.request_id]
            if isinstance(event, GenerationArrived) and decision.reason is FinishReason.DONE:
                for sample in range(event.samples):
                    assert (decision.request_id, sample) in self.ends

    def check_device(self) -> None:
        super().check_device()
        self.kv.check()

    def complete(self, step_id: int, event: StepCompleted | None = None) -> None:
        """Run a step on the virtual device and report it."""
        step = self.running[step_id]
        if event is not None and event.outcome is not StepOutcome.OK:
            self.handle(event)
            return
        sampled = self._run(step) if isinstance(step, DecoderStepScheduled) else ()
        ns = self.cost(step) if event is None else event.device_ns
        bad = () if event is None else event.non_finite
        self.handle(StepCompleted(step_id, StepOutcome.OK, ns, bad, sampled))

    def _run(self, step: DecoderStepScheduled) -> tuple[int, ...]:
        for source, target in step.copies:
            self.memory[target] = list(self.memory[source])
        sampled = []
        for s in step.seqs:
            table = self._tables[s.request_id, s.sample]
            tokens, states = self._known(s.request_id, s.sample)
            for p in range(s.context_len):
                assert self.memory[table[p // self.size]][p % self.size] == states[p]
            for p in range(s.context_len, s.context_len + s.num_tokens):
                self.memory[table[p // self.size]][p % self.size] = states[p]
            self.computed += s.num_tokens
            if s.wanted:
                assert s.context_len + s.num_tokens == len(tokens)
                sampled.append(next_token(states[-1], s.sample))
        return tuple(sampled)

    def _known(self, request_id: int, sample: int) -> tuple[list[int], list[int]]:
        event = self.arrived[request_id]
        assert isinstance(event, GenerationArrived)
        tokens = [*event.tokens, *self.tokens.get((request_id, sample), ())]
        states, state = [], sum(map(ord, event.salt))
        for token in tokens:
            state = state_after(state, token)
            states.append(state)
        return tokens, states

    def _check_step(self, step: DecoderStepScheduled) -> None:
        shape, spec = step.shape, self.lane.spec
        assert shape.num_seqs <= spec.max_seqs
        assert shape.num_tokens <= spec.max_tokens
        assert sum(isinstance(s, DecoderStepScheduled) for s in self.running.values()) == 0
        written: list[int] = []
        for s in step.seqs:
            key = s.request_id, s.sample
            table = [*self._tables.get(key, [])[: s.kept], *s.blocks]
            assert len(table) == s.kept + len(s.blocks)
            self._tables[key] = table
            end = s.context_len + s.num_tokens
            assert len(table) * self.size >= end
            written += table[s.context_len // self.size : -(-end // self.size)]
        assert len(written) == len(set(written)), "two rows write one block"
        assert not {source for source, _ in step.copies} & set(written) or all(
            target in written for _, target in step.copies
        )

    def check_idle(self) -> None:
        super().check_idle()
        residents = self.lane.residents
        assert not residents.running
        assert not residents.preempted
        assert residents.seats == 0
        self.kv.check_idle()

    def gaps_ms(self, request_id: int, sample: int = 0) -> list[float]:
        times = self.times[request_id, sample]
        return [(b - a) / MS for a, b in pairwise(times)]

    def ttft_ms(self, request_id: int, sample: int = 0) -> float:
        return (self.times[request_id, sample][0] - self.arrived_at[request_id]) / MS
