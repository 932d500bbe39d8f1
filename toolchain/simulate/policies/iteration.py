"""What servers that schedule every iteration of a decoder have in common.

Sequences, the blocks that they hold, and what the end of a step means. What differs is who
runs in the next iteration and who loses its blocks: `plan` of the subclasses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from runtime_py.batching import (
    BoundBy,
    Decision,
    DecoderSlice,
    DecoderStepScheduled,
    Event,
    FinishReason,
    GenerationArrived,
    Idle,
    RequestFinished,
    SampleFinished,
    StepCompleted,
    StepShape,
    TokenEmitted,
)
from toolchain.simulate.policies.setup import Setup


class Stream:
    """A request in the server.

    Attributes:
        prompt_len: tokens of its prompt.
        max_tokens: most that it may generate, cut to what the model has positions for.
        known: prompt and generated tokens.
        computed: of these, in the cache.
        blocks: that it holds or has reserved.
        order: of arrival.
    """

    __slots__ = (
        "blocks",
        "computed",
        "known",
        "max_tokens",
        "order",
        "prompt_len",
        "request_id",
        "stop_ids",
    )

    def __init__(self, event: GenerationArrived, max_tokens: int, order: int) -> None:
        self.request_id = event.request_id
        self.prompt_len = len(event.tokens)
        self.max_tokens = max_tokens
        self.stop_ids = event.stop_ids
        self.known = self.prompt_len
        self.computed = 0
        self.blocks = 0
        self.order = order

    @property
    def left(self) -> int:
        """Known tokens that are to be computed; 1 when it decodes."""
        return self.known - self.computed

    @property
    def decodes(self) -> bool:
        return self.known - self.computed == 1 and self.known > self.prompt_len

    @property
    def generated(self) -> int:
        return self.known - self.prompt_len

    @property
    def longest(self) -> int:
        """Tokens it has when it uses its limit up."""
        return self.prompt_len + self.max_tokens


Plan = list[tuple[Stream, int]]
"""Streams of the next iteration with how many tokens each computes."""


class IterationScheduler:
    """A server that decides anew after every iteration.

    Attributes:
        waiting: streams that do not run, next first.
        running: those that do, in the order in which they started.
        free_blocks: of the key-value cache.
        bound: what kept the latest plan from growing.
    """

    def __init__(self, setup: Setup, *, max_num_seqs: int, block_size: int = 0) -> None:
        (lane,) = setup.lanes
        spec = lane.spec
        self.block_size = block_size or spec.block_size
        self.free_blocks = spec.kv_blocks * spec.block_size // self.block_size
        self.waiting: deque[Stream] = deque()
        self.running: list[Stream] = []
        self.max_num_seqs = min(max_num_seqs, spec.max_seqs)
        self.bound = BoundBy.ALL
        self._all_blocks = self.free_blocks
        self._max_context = min(
            spec.max_context or spec.kv_blocks * spec.block_size,
            self.free_blocks * self.block_size,
        )
        self._lane = spec.name
        self._threads = setup.device.threads
        self._in_flight: Plan = []
        self._next_step = 0
        self._num_arrived = 0

    # --- what a server decides

    def plan(self) -> Plan:
        """Who runs in the next iteration; the device is free. Takes blocks and gives them."""
        raise NotImplementedError

    # --- memory

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def grow(self, stream: Stream, num_tokens: int) -> bool:
        """Give ``stream`` blocks for this many tokens in all, if there are enough."""
        need = self.blocks_for(num_tokens) - stream.blocks
        if need > self.free_blocks:
            return False
        if need > 0:
            self.free_blocks -= need
            stream.blocks += need
        return True

    def start(self, stream: Stream) -> None:
        """The first in the queue begins to run."""
        assert self.waiting[0] is stream
        self.waiting.popleft()
        self.running.append(stream)

    def preempt(self, stream: Stream) -> None:
        """Take its blocks; it waits at the front and computes everything again."""
        self.running.remove(stream)
        self._release(stream)
        stream.computed = 0
        self.waiting.appendleft(stream)

    def _release(self, stream: Stream) -> None:
        self.free_blocks += stream.blocks
        stream.blocks = 0

    # --- the protocol of all policies

    def handle_all(self, events: Sequence[Event], now_ns: int) -> list[Decision]:
        """Events in, decisions out; see `Policy`."""
        out: list[Decision] = []
        for event in events:
            if isinstance(event, StepCompleted):
                self._completed(event, out)
            elif isinstance(event, GenerationArrived):
                self._arrived(event, out)
        if not self._in_flight and (self.running or self.waiting):
            self.bound = BoundBy.ALL
            plan = self.plan()
            if plan:
                self._start(plan, out)
        out.append(Idle(-1))
        return out

    def _arrived(self, event: GenerationArrived, out: list[Decision]) -> None:
        room = self._max_context - len(event.tokens)
        if room < 1:
            limit = self._max_context - 1
            out.append(RequestFinished(event.request_id, FinishReason.NEVER_FITS, 0, -1, limit))
            return
        self.waiting.append(Stream(event, min(event.max_tokens, room), self._num_arrived))
        self._num_arrived += 1

    def _start(self, plan: Plan, out: list[Decision]) -> None:
        self._in_flight = plan
        seqs, tokens, pairs, context = [], 0, 0, 0
        for stream, count in plan:
            end = stream.computed + count
            wanted = 1 if end == stream.known else 0
            seqs.append(DecoderSlice(stream.request_id, 0, stream.computed, count, wanted, 0, ()))
            tokens += count
            pairs += count * end
            context += end
        shape = StepShape(len(seqs), tokens, pairs, context, self._threads)
        out.append(
            DecoderStepScheduled(
                step_id=self._next_step,
                lane=self._lane,
                seqs=tuple(seqs),
                copies=(),
                shape=shape,
                predicted_ns=0,
                bound=self.bound,
            )
        )
        self._next_step += 1

    def _completed(self, event: StepCompleted, out: list[Decision]) -> None:
        plan, self._in_flight = self._in_flight, []
        row = 0
        for stream, count in plan:
            stream.computed += count
            if stream.computed < stream.known:
                continue
            token = event.sampled[row]
            out.append(TokenEmitted(stream.request_id, 0, token, stream.known, event.step_id, row))
            row += 1
            stream.known += 1
            stopped = token in stream.stop_ids
            if stopped or stream.generated >= stream.max_tokens:
                reason = FinishReason.STOP if stopped else FinishReason.LENGTH
                out.append(SampleFinished(stream.request_id, 0, reason))
                out.append(RequestFinished(stream.request_id, FinishReason.DONE))
                self._release(stream)
                self.running.remove(stream)
                self.ended(stream)

    def ended(self, stream: Stream) -> None:
        """A stream has all its tokens."""
