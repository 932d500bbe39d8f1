"""Fills one decoder step: a token for every running stream, then prompts from what is left.

Continuous batching (Yu et al., "Orca", OSDI 2022) with chunked prefill (Agrawal et al.,
"Sarathi-Serve", OSDI 2024): the time between two tokens of a stream is bounded by the
TPOT target, so a step's prompt tokens are what the cost model says still fits into it.
Several prompts share that budget, shortest first, so none waits for a long one and the
long one always gets its share.
"""

from __future__ import annotations

from itertools import repeat
from typing import NamedTuple

from runtime_py.batching.admission import Admission
from runtime_py.batching.config import SchedulerConfig
from runtime_py.batching.cost_model import CostLine
from runtime_py.batching.decoder_entry import Entrance
from runtime_py.batching.generation import Generation, Sample
from runtime_py.batching.queue import RequestQueue
from runtime_py.batching.residents import Residents
from runtime_py.batching.types import MAX_NS, NS_PER_MS, BoundBy, StepShape, TrafficClass

_BULK_PART = 8  # bulk prompts get this part of a budget that they share with latency ones
_GROWTH = 4.0  # a step among streams has at most so many times the tokens of the largest yet
_FIRST_TOKENS = 32  # ... or this many
_ALONE_TOKENS = 64  # prompt tokens of a step without streams, however dear they seem


class DecoderBatch(NamedTuple):
    """The members of a step, in row order, with how many tokens each.

    Attributes:
        num_streams: the first so many are streams, with a token each.
        copies: (source, target) blocks.
        is_retry: it holds one sequence of a failed step.
        overdue, blocked, binding, limit: as in `Why`.
        spare_ns: what the most urgent member can wait from now on, or `MAX_NS`.
    """

    members: list[tuple[Sample, int]]
    num_streams: int
    copies: list[tuple[int, int]]
    shape: StepShape
    bound: BoundBy
    is_retry: bool
    overdue: int
    blocked: int
    binding: int
    limit: int
    spare_ns: int


class _Fill:
    """A step while it grows.

    Attributes:
        target_ns: what it may take by prediction: the tightest TPOT target of a stream in
            it, which is that of request ``binding``.
    """

    def __init__(self, line: CostLine, target_ns: int, now_ns: int) -> None:
        self.target_ns = target_ns
        self.now_ns = now_ns
        self.spare_ns = MAX_NS
        self.blocked = -1
        self.binding = -1
        self.limit = 0
        self.members: list[tuple[Sample, int]] = []
        self.copies: list[tuple[int, int]] = []
        self.num_tokens = 0
        self.pairs = 0
        self.kv_tokens = 0
        self.bound = BoundBy.ALL
        self.num_streams = 0
        self.preempted = False
        self._line = line

    @property
    def ns(self) -> float:
        """What it is predicted to take."""
        line = self._line
        ns = line.fixed + line.seq * len(self.members) + line.token * self.num_tokens
        return ns + line.pair * self.pairs + line.kv * self.kv_tokens

    def aim(self, tightest: Generation | None) -> None:
        """Its streams are chosen: the tightest of their targets is the step's."""
        if tightest is not None:
            self.target_ns = self.spare_ns = tightest.tpot_target_ns
            self.binding = tightest.request_id if self.target_ns < MAX_NS else -1

    def stop(self, bound: BoundBy, blocked: int, limit: int) -> None:
        """Something kept ``blocked`` out; the last obstacle is the one that is told."""
        self.bound, self.blocked, self.limit = bound, blocked, limit

    def out_of_time(self, sample: Sample) -> None:
        """A prompt does not get all of its tokens."""
        self.stop(BoundBy.TPOT, sample.request.request_id, self.target_ns)

    def add(self, sample: Sample, num_tokens: int) -> None:
        context = sample.kv.computed + num_tokens
        self.members.append((sample, num_tokens))
        self.num_tokens += num_tokens
        self.pairs += num_tokens * context
        self.kv_tokens += context


class DecoderBatcher:
    """Builds the next step of one lane; takes what starts out of the queue.

    Attributes:
        proven_tokens, proven_ns: the largest step that the device has run, and its time.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        admission: Admission,
        residents: Residents,
        queue: RequestQueue,
    ) -> None:
        self.proven_tokens = 0
        self.proven_ns = 0
        self._admission = admission
        self._residents = residents
        self._kv = residents.kv
        self._entrance = Entrance(config, admission, residents, queue)
        self._target_ns = config.tpot_target_ms * NS_PER_MS
        self._prefill_share = config.prefill_share_percent / 100
        self._max_partial = config.max_partial_prefills
        self._max_preemptions = config.max_preemptions
        self._retried_last = False
        self._streams: list[Sample] = []  # those of the last step, and ...
        self._tightest: Generation | None = None  # ... who of them waits least for a token

    def learn(self, shape: StepShape, device_ns: int) -> None:
        """A step of this shape ran; see `_budget`."""
        if shape.num_tokens >= self.proven_tokens and device_ns > 0:
            self.proven_tokens, self.proven_ns = shape.num_tokens, device_ns

    def fill(self, line: CostLine, threads: int, now_ns: int) -> DecoderBatch:
        """Choose the members of the next step; there is work, and no step is in flight.

        Args:
            line: the cost model at this step's thread count.
            threads: that count.
            now_ns: the present.
        """
        fill = _Fill(line, self._target_ns, now_ns)
        entrance = self._entrance
        entrance.bulk_entered, entrance.token_ns = False, line.token
        overdue = entrance.overdue(now_ns)
        retry = self._retry(fill)
        if not retry:
            if entrance.make_room():
                fill.preempted = True
                fill.stop(BoundBy.MEMORY, entrance.blocked, self._kv.free_blocks)
            running, streams = self._residents.running, self._residents.streams
            prompts: list[Sample] = []
            if len(streams) < len(running):
                prompts = [s for s in running if not (s.decodes or s.suspect)]
            if streams:
                self._decode(fill, streams)
                fill.num_streams = len(fill.members)
            if prompts or entrance.waiting:
                self._prefill(fill, [s for s in prompts if s.resident], now_ns)
            if not fill.members:
                retry = self._force(fill)
        if retry:
            culprit = fill.members[0][0].request.request_id
            fill.stop(BoundBy.RETRY, -1, 1)
            fill.binding = culprit
        elif fill.bound is not BoundBy.TPOT:
            fill.binding = -1
        return DecoderBatch(
            fill.members,
            fill.num_streams,
            fill.copies,
            StepShape(len(fill.members), fill.num_tokens, fill.pairs, fill.kv_tokens, threads),
            fill.bound,
            retry,
            1 if overdue and entrance.bulk_entered else 0,
            fill.blocked,
            fill.binding,
            fill.limit,
            fill.spare_ns,
        )

    # --- failed steps

    def _retry(self, fill: _Fill) -> bool:
        """Run a sequence of a failed step alone; every other step is for the rest."""
        running = self._residents.running
        suspect = None
        if len(self._residents.streams) < len(running):
            suspect = next((s for s in running if s.suspect), None)
        others = self._retried_last and any(not s.suspect for s in running)
        if suspect is None or (others and not fill.preempted):
            self._retried_last = False
            return False
        self._retried_last = True
        count = min(suspect.suspect, suspect.left, self._admission.max_tokens)
        self._insist(fill, suspect, count, self._by_worth(first=suspect))
        return True

    def _force(self, fill: _Fill) -> bool:
        """Nobody found memory: the worthiest gets what it needs; whether it is a suspect."""
        worth = self._by_worth()
        sample = worth[0]
        goal = sample.left if sample.request.forked else sample.left - 1
        count = min(sample.suspect or goal, goal, self._kv.block_size)
        self._insist(fill, sample, count, worth)
        return sample.suspect > 0

    # --- streams

    def _decode(self, fill: _Fill, streams: list[Sample]) -> None:
        """A token for every stream."""
        if len(streams) > self._admission.max_tokens:
            streams = sorted(streams, key=lambda s: (s.last_step, s.key))
            most = self._admission.max_tokens
            fill.stop(BoundBy.TOKENS, streams[most].request.request_id, most)
            del streams[most:]
        kv = self._kv
        if kv.free_blocks < len(streams):
            self._decode_in_need(fill, len(streams))
            fill.aim(_tightest([sample for sample, _ in fill.members]))
            return
        pairs, size = len(streams), kv.block_size
        for sample in streams:
            seq = sample.kv
            pairs += seq.computed
            if seq.forked or seq.computed == len(seq.blocks) * size:
                reservation = kv.reserve(sample.seq_id, 1)
                assert reservation is not None  # one block each is free
                fill.copies += reservation.copies
        fill.members += zip(streams, repeat(1))
        fill.num_tokens += len(streams)
        fill.pairs += pairs
        fill.kv_tokens += pairs
        if streams is not self._streams:  # as in the last step, as long as nobody comes or goes
            self._streams, self._tightest = streams, _tightest(streams)
        fill.aim(self._tightest)

    def _decode_in_need(self, fill: _Fill, most: int) -> None:
        """Memory may run out: the worthiest first, at the cost of the least worthy."""
        worth = self._by_worth()
        i = 0
        while i < len(worth) and len(fill.members) < most:
            sample = worth[i]
            if sample.request.forked and sample.left == 1 and not sample.suspect:
                self._insist(fill, sample, 1, worth)
            i += 1

    def _by_worth(self, first: Sample | None = None) -> list[Sample]:
        """Residents, the next victim last: lowest class, then least to recompute.

        Those that were preempted often enough come first whatever their class, and
        before them the one that must run.
        """
        limit = self._max_preemptions
        return sorted(
            self._residents.running,
            key=lambda s: (
                s is not first,
                s.preemptions < limit,
                s.request.traffic,
                -s.kv.computed,
                s.key,
            ),
        )

    def _insist(self, fill: _Fill, sample: Sample, count: int, worth: list[Sample]) -> None:
        """Place a sample, preempting those of less worth if need be.

        Who was preempted often enough is spared, unless nothing could run otherwise: the
        worthiest always runs, so everything ends. Whoever finds no memory and no victim
        stands still for this step and keeps its blocks.
        """
        while not self._place(fill, sample, count):
            fill.stop(BoundBy.MEMORY, sample.request.request_id, self._kv.free_blocks)
            victim = worth[-1]
            if victim is sample or (fill.members and victim.preemptions >= self._max_preemptions):
                return
            worth.pop()
            self._residents.preempt(victim)
            fill.preempted = True

    def _place(self, fill: _Fill, sample: Sample, count: int) -> bool:
        reservation = self._kv.reserve(sample.seq_id, count)
        if reservation is None:
            return False
        fill.copies += reservation.copies
        fill.add(sample, count)
        return True

    # --- prompts

    def _prefill(self, fill: _Fill, prompts: list[Sample], now_ns: int) -> None:
        """Let newcomers in, and share the rest of the budget among the prompts."""
        streams = len(fill.members)
        budget = self._budget(fill, prompts)
        if not fill.preempted or not (fill.members or prompts):
            prompts = self._admit(fill, prompts, budget, streams, now_ns)
        latency = [s for s in prompts if s.request.traffic is TrafficClass.LATENCY]
        bulk = [s for s in prompts if s.request.traffic is not TrafficClass.LATENCY]
        kept = max(budget // _BULK_PART, 1) if latency and bulk and budget > 1 else 0
        left = kept + self._share(fill, latency, budget - kept)
        self._share(fill, bulk, left)

    def _admit(
        self, fill: _Fill, prompts: list[Sample], budget: int, streams: int, now_ns: int
    ) -> list[Sample]:
        """The prompts with the newcomers: whole ones, and partial ones up to a number."""
        partial = len(prompts)
        share = budget // (partial + 1)
        unclaimed = budget - sum([min(s.left, share) for s in prompts])
        prompts = list(prompts)
        busy = len(fill.members) > 0 and fill.ns > fill.target_ns
        while unclaimed > 0:
            before = len(self._residents.running)
            longest = unclaimed if partial >= self._max_partial else MAX_NS
            bound = self._entrance.admit(longest, busy, now_ns)
            if bound is not BoundBy.ALL:
                fill.stop(bound, self._entrance.blocked, self._entrance.limit)
                if bound is BoundBy.TPOT:
                    fill.limit = fill.target_ns
                break
            new = self._residents.running[before:]
            if not new:
                break
            prompts += new
            left = sum([s.left for s in new])
            partial += left > unclaimed
            unclaimed -= left
        self._entrance.note(now_ns)
        if fill.bound is BoundBy.ALL and self._entrance.waiting:
            fill.stop(BoundBy.TPOT, self._entrance.first_id(), fill.target_ns)
        return prompts

    def _share(self, fill: _Fill, prompts: list[Sample], budget: int) -> int:
        """Deal tokens out, shortest prompt first; returns what is left."""
        prompts.sort(key=lambda s: (s.left, s.key))
        for i, sample in enumerate(prompts):
            if budget < 1:
                fill.out_of_time(sample)
                break
            goal = sample.left if sample.request.forked else sample.left - 1
            count = min(goal, max(budget // (len(prompts) - i), 1))
            budget -= self._prefill_one(fill, sample, count)
            if count < goal and fill.bound is BoundBy.ALL:
                fill.out_of_time(sample)
        return budget

    def _prefill_one(self, fill: _Fill, sample: Sample, count: int) -> int:
        """Place a chunk, as much of it as memory holds; returns its tokens."""
        request = sample.request
        if self._place(fill, sample, count):
            if count == sample.left and request.traffic is TrafficClass.LATENCY:
                fill.spare_ns = min(fill.spare_ns, request.due_ns - fill.now_ns)
            return count
        fill.stop(BoundBy.MEMORY, request.request_id, self._kv.free_blocks)
        seq, size = sample.kv, self._kv.block_size
        room = (len(seq.blocks) + self._kv.free_blocks) * size - seq.computed
        if 0 < room < count and self._place(fill, sample, room):
            return room
        return 0  # it waits: what runs will end and make room

    def _budget(self, fill: _Fill, prompts: list[Sample]) -> int:
        """Prompt tokens that the step may still take: at least 1 if it holds one more.

        Without streams nobody's next token waits for the step. Its chunk is then long enough
        to show what tokens cost: a cost model that takes them for too dear would otherwise
        see single ones for ever, and never learn.

        Among streams the budget grows with what the device has shown, because a cost model
        that has not met long chunks yet may be wrong by any factor: a step longer than the
        longest yet is taken to cost at most in proportion.
        """
        most = self._admission.max_tokens - len(fill.members)
        if fill.members:
            growth = min(fill.target_ns / max(self.proven_ns, 1), _GROWTH)
            proven = max(int(self.proven_tokens * max(growth, 1.0)), _FIRST_TOKENS)
            most = min(most, max(proven - len(fill.members), 1))
        context = max([s.kv.computed for s in prompts], default=0)
        floor_ns = fill.target_ns * self._prefill_share
        left_ns = max(fill.target_ns - fill.ns, floor_ns)
        line = fill._line
        low, high = 1, most
        while low < high:
            m = (low + high + 1) // 2
            end = context + m
            if line.seq + line.token * m + line.pair * (m * end) + line.kv * end <= left_ns:
                low = m
            else:
                high = m - 1
        if not fill.members:
            low = max(low, _ALONE_TOKENS)
        return min(low, most)


def _tightest(streams: list[Sample]) -> Generation | None:
    """The request with the shortest TPOT target, the first of equals."""
    return min([s.request for s in streams], key=_tpot_target_ns, default=None)


def _tpot_target_ns(request: Generation) -> int:
    return request.tpot_target_ns
