"""The plain data that the batching core is made of.

Arithmetic in this package is chosen so that JavaScript makes the same decisions:
integers stay below 2**53, and where a ratio is needed it is an IEEE double built
with ``+ - * /`` only, in a fixed order. Nothing iterates over a set, nothing calls
``hash()``, and every tie breaks by (due time, arrival, sequence number).
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import NamedTuple

from runtime_py.batching.config import SchedulerConfig

MAX_NS = 2**52
"""Later than any time this package computes; exact in a double."""

NS_PER_MS = 1_000_000


class TrafficClass(IntEnum):
    """What a request wants from the scheduler."""

    LATENCY = 0
    """Somebody waits for it: earliest due time first."""
    THROUGHPUT = 1
    """Bulk work: fills what is left, first come first served, and never starves."""


class LaneKind(StrEnum):
    """What a lane's requests become."""

    ENCODER = "encoder"
    """Each sequence runs once, whole, and gives a vector."""
    DECODER = "decoder"
    """Each sequence is prefilled in chunks and then gives a token per step."""


class StepOutcome(StrEnum):
    """How a step ended, as the driver reports it."""

    OK = "ok"
    FAILED = "failed"
    """The backend raised; which of the step's sequences is to blame is unknown."""
    OUT_OF_MEMORY = "out_of_memory"
    LOST = "lost"
    """The backend died; nothing will run on it again."""


class FinishReason(StrEnum):
    """Why a request ended. Everything but ``DONE`` becomes a typed error.

    A sample of a generation ends by ``STOP`` or ``LENGTH``, its request then by ``DONE``.
    """

    DONE = "done"
    STOP = "stop"
    """A stop token was sampled, or the driver saw the end of the text."""
    LENGTH = "length"
    """It has as many tokens as were asked for, or as the model has positions."""
    NEVER_FITS = "never_fits"
    OVERLOADED = "overloaded"
    DEADLINE = "deadline"
    TIMEOUT = "timeout"
    ABORTED = "aborted"
    NON_FINITE = "non_finite"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_LOST = "device_lost"


class BoundBy(StrEnum):
    """What kept a batch from growing further: the first thing to ask about a step."""

    ALL = "all"
    """Everything that waited is in it."""
    SEQS = "seqs"
    TOKENS = "tokens"
    TIME = "time"
    """The step's predicted time reached its target."""
    TPOT = "tpot"
    """More prompt tokens would have kept a running stream waiting for its next token."""
    DEADLINE = "deadline"
    """One more sequence would have cost a member its deadline."""
    MEMORY = "memory"
    """The key-value cache is full: a sequence stood still, went, or was not let in."""
    RETRY = "retry"
    """A sequence of a failed step, alone, so that only the culprit can fail again."""


class Turn(StrEnum):
    """Why a lane got the device."""

    ONLY = "only"
    """No other lane had anything to start."""
    URGENT = "urgent"
    """Of the lanes with urgent work, it has to start first."""
    LATE = "late"
    """Several lanes are late already; it has had the least time for its weight."""
    SHARE = "share"
    """Of the lanes with bulk work, it has had the least time for its weight."""
    SLACK = "slack"
    """An urgent lane can wait for this bulk step, and its own step will be larger for it."""


class Why(NamedTuple):
    """What made a step what it is.

    Attributes:
        turn: why its lane was chosen.
        overdue: 1 if bulk work went first because it had waited long enough, else 0.
        blocked: the request that would have been next, or -1 if nothing was left out.
        binding: the request whose deadline, due time or TPOT target set the limit (a member,
            or the blocked one itself), or -1.
        limit: the limit that ``bound`` names: tokens, sequences, nanoseconds, or free
            blocks; 0 if there was none.
        slack_ns: what the most urgent member has to spare if the prediction is right;
            negative when it will be late, `MAX_NS` when nobody is waiting for the step.
        waiting: sequences of the lane that are still queued.
        expected: sequences that are expected to arrive while the step runs.
    """

    turn: Turn = Turn.ONLY
    overdue: int = 0
    blocked: int = -1
    binding: int = -1
    limit: int = 0
    slack_ns: int = MAX_NS
    waiting: int = 0
    expected: int = 0


class StepShape(NamedTuple):
    """What a step's time depends on.

    Attributes:
        num_seqs: sequences.
        num_tokens: tokens of this step, over all sequences.
        sum_len_sq: the query-key pairs of attention: of an encoder the sum of squared
            lengths, of a decoder the sum of tokens times context.
        kv_tokens: tokens whose keys and values are read from the cache; 0 for an encoder.
        threads: threads that run the step.
    """

    num_seqs: int
    num_tokens: int
    sum_len_sq: int
    kv_tokens: int = 0
    threads: int = 1


class SeqSlice(NamedTuple):
    """One sequence of a step: item ``item`` of a request, ``num_tokens`` long."""

    request_id: int
    item: int
    num_tokens: int


class DecoderSlice(NamedTuple):
    """One sequence of a decoder's step.

    The driver keeps every sequence's block table; a slice tells how it changed.

    Attributes:
        request_id, sample: whose.
        context_len: its tokens that ran in earlier steps.
        num_tokens: those of this step, from position ``context_len`` on.
        wanted: 1 if a token is to be sampled after the last of them, else 0.
        kept: leading entries of its block table that stay.
        blocks: the entries that follow them.
    """

    request_id: int
    sample: int
    context_len: int
    num_tokens: int
    wanted: int
    kept: int
    blocks: tuple[int, ...]


class CostProfile(NamedTuple):
    """Nanoseconds per unit of `StepShape`, on one thread: what the cost model starts from.

    Attributes:
        step_ns: per step.
        thread_ns: per thread beyond the first (starting it and meeting it at barriers).
        seq_ns: per sequence.
        token_ns: per token.
        pair_ns: per query-key pair (``sum_len_sq``).
        kv_ns: per token read from the key-value cache.
    """

    step_ns: float = 100_000.0
    thread_ns: float = 40_000.0
    seq_ns: float = 5_000.0
    token_ns: float = 200_000.0
    pair_ns: float = 100.0
    kv_ns: float = 50.0


class DeviceSpec(NamedTuple):
    """What all lanes share.

    Attributes:
        threads: threads of the pool; steps in flight never use more together.
        concurrent_steps: most steps in flight.
        step_threads: most threads of one step; 0 = all. Less than all where the threads
            share no memory, so that each can only run steps of its own.
    """

    threads: int = 1
    concurrent_steps: int = 1
    step_threads: int = 0

    def most_threads(self, free: int) -> int:
        """Threads that a step can have when ``free`` are."""
        return min(free, self.step_threads) if self.step_threads else free


class LaneSpec(NamedTuple):
    """One model's queue of one kind of work.

    Attributes:
        name: key of the lane, unique in its core, such as ``"minilm/embed"``.
        max_tokens: most tokens in a step; an encoder's longer sequence never fits.
        max_seqs: most sequences in a step; of a decoder also the most that are under way,
            and the most rows that may be sampled in a step.
        weight: share of device time against other lanes: while all are late, and of bulk
            work always.
        profile: where the cost model starts.
        kind: encoder or decoder.
        kv_blocks: decoder: blocks of its key-value cache.
        block_size: decoder: tokens of a block.
        max_context: decoder: most tokens of a sequence, generated ones included; 0 =
            what the cache holds.
        config: its own knobs; None = those of the core.
    """

    name: str
    max_tokens: int
    max_seqs: int
    weight: int = 1
    profile: CostProfile = CostProfile()
    kind: LaneKind = LaneKind.ENCODER
    kv_blocks: int = 0
    block_size: int = 32
    max_context: int = 0
    config: SchedulerConfig | None = None
