"""A generation inside the core: one prompt, and the samples that continue it."""

from __future__ import annotations

from runtime_py.batching.events import GenerationArrived
from runtime_py.batching.kv import KVSequence
from runtime_py.batching.request import Request
from runtime_py.batching.types import TrafficClass


class Sample:
    """One sequence of a generation, from admission (or its fork) to its end.

    Attributes:
        index: which sample of its request.
        seq_id: its number in the `KVManager`.
        kv: what the manager knows of it.
        resident: it is among those that run, not preempted.
        end: tokens of its sequence, the prompt's included, at which it has all it may get.
        preemptions: how often its blocks were taken away.
        suspect: its tokens in a step that failed; it runs them alone next. 0 = none.
        last_step: number of the last step it was in.
        alive: it has not ended.
    """

    __slots__ = (
        "alive",
        "end",
        "index",
        "kv",
        "last_step",
        "preemptions",
        "request",
        "resident",
        "seq_id",
        "suspect",
    )

    def __init__(self, request: Generation, index: int, seq_id: int, kv: KVSequence) -> None:
        self.request = request
        self.index = index
        self.seq_id = seq_id
        self.kv = kv
        self.end = len(request.prompt) + request.max_tokens
        self.resident = True
        self.preemptions = 0
        self.suspect = 0
        self.last_step = -1
        self.alive = True

    @property
    def left(self) -> int:
        """Known tokens that are to be computed: 1 when it decodes."""
        return len(self.kv.tokens) - self.kv.computed

    @property
    def decodes(self) -> bool:
        """Its next token gives one: the prompt is computed, and its twins are born."""
        kv = self.kv
        return kv.computed + 1 == len(kv.tokens) and self.request.forked

    @property
    def remaining(self) -> int:
        """Tokens that it may still get."""
        return self.end - len(self.kv.tokens)

    @property
    def seats(self) -> int:
        """Sequences that it stands for: until the prompt is computed also its twins."""
        return 1 if self.request.forked else len(self.request.num_tokens)

    @property
    def key(self) -> tuple[int, int, int]:
        """Its place among others of the same kind of work."""
        return self.request.traffic, self.request.seq, self.index


class Generation(Request):
    """A `GenerationArrived`. Its items are its samples: the prompt, and one token each
    for the others, which is what they cost to start.

    Attributes:
        prompt: ids.
        max_tokens: of each sample, limited to what the lane can hold.
        tpot_target_ns: longest time between two of its tokens while others join.
        stop_ids: ids that end a sample.
        salt: namespace in the prefix cache.
        samples: those that are under way or ended, by index.
        num_open: samples that have not ended, the unborn included.
        forked: all samples exist.
    """

    __slots__ = (
        "forked",
        "max_tokens",
        "num_open",
        "prompt",
        "salt",
        "samples",
        "stop_ids",
        "tpot_target_ns",
    )

    def __init__(
        self,
        event: GenerationArrived,
        now_ns: int,
        seq: int,
        max_tokens: int,
        tpot_target_ns: int,
    ) -> None:
        lengths = (len(event.tokens), *[1] * (event.samples - 1))
        super().__init__(
            event.request_id,
            lengths,
            TrafficClass(event.traffic),
            now_ns,
            event.deadline_ns,
            seq,
            event.tenant,
        )
        self.prompt = event.tokens
        self.max_tokens = max_tokens
        self.tpot_target_ns = tpot_target_ns
        self.stop_ids = event.stop_ids
        self.salt = event.salt
        self.samples: list[Sample] = []
        self.num_open = event.samples
        self.forked = event.samples == 1
