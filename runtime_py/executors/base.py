"""The step: the only way into a backend (docs/design.md, 3.3)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple, Protocol, overload, runtime_checkable

KVFormat = Literal["f32", "f16"]
"""How a decoder's cache stores keys and values."""


class SeqRow(NamedTuple):
    """One sequence of a step.

    Attributes:
        first_token: index of its first token in the step's ``token_ids``.
        num_tokens: tokens it has in this step (at least 1).
        context_len: its tokens that ran in earlier steps; 0 for an encoder. Token i has
            position ``context_len + i``.
        pool_skip: leading tokens that pooling leaves out (a prompt that the model's
            pooling excludes); less than ``num_tokens``.
    """

    first_token: int
    num_tokens: int
    context_len: int = 0
    pool_skip: int = 0


class SeqRows(Sequence[SeqRow]):
    """Rows of a step that lie flat, so that nobody makes an object of each for nothing.

    Attributes:
        words: ``array('I')``, the four numbers of every `SeqRow`.
    """

    __slots__ = ("words",)

    def __init__(self, words: array[int]) -> None:
        self.words = words

    def __len__(self) -> int:
        return len(self.words) // 4

    @overload
    def __getitem__(self, index: int) -> SeqRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[SeqRow]: ...
    def __getitem__(self, index: int | slice) -> SeqRow | list[SeqRow]:
        if isinstance(index, slice):
            return list(self)[index]
        first = 4 * range(len(self))[index]
        return SeqRow._make(self.words[first : first + 4])

    def __iter__(self) -> Iterator[SeqRow]:
        return map(SeqRow._make, zip(*[iter(self.words)] * 4, strict=True))


class SamplingRow(NamedTuple):
    """How the backend turns one wanted row of logits into a token.

    Applied in this order: repetition, presence and frequency penalties over
    ``penalized``, ``bias``, ``mask``, temperature, top-k, top-p, min-p; docs/design.md 7.2
    has the arithmetic. The random number is a function of ``seed`` and ``position`` alone.

    Attributes:
        temperature: 0 takes the most likely token (the lowest id on a tie); else 1e-6 to 1e6.
        top_k: 0 = all.
        top_p: 1 = all. Nucleus over the probabilities after temperature and top-k.
        min_p: 0 = all; drops tokens below ``min_p`` times the largest probability.
        repetition_penalty: divides positive and multiplies negative logits of the
            ``penalized`` ids (Keskar et al. 2019); 1 = none; 1e-3 to 1e3.
        presence_penalty, frequency_penalty: subtracted once, or per occurrence, from the
            ids that were *generated*; 0 = none; -1e3 to 1e3.
        penalized: (token id, occurrences in the prompt, occurrences in the output), each
            id once.
        bias: (token id, added to its logit), each id once; -1e9 to 1e9.
        mask: bit i allows token i, ``ceil(vocab / 32)`` little-endian u32; None allows
            all; at least one token must be allowed.
        seed: 64 bits.
        position: of the token to be sampled, from 0 at the first prompt token; 32 bits.
        top_logprobs: how many most likely tokens to report, at most 20.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalized: Sequence[tuple[int, int, int]] = ()
    bias: Sequence[tuple[int, float]] = ()
    mask: bytes | None = None
    seed: int = 0
    position: int = 0
    top_logprobs: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of the whole program over T packed tokens of S sequences.

    Attributes:
        token_ids: ``array('i')`` of T ids. Sequences lie back to back, in order,
            without padding: ``seqs[i].first_token`` is the sum of the earlier lengths.
        seqs: S rows.
        threads: how many of the executor's threads run this step; results do not
            depend on it.
        block_tables: decoders only: per sequence, the KV blocks (`KV_BLOCK` tokens each)
            of its positions 0 .. context_len + num_tokens - 1.
        copies: decoders only: (from, to) KV blocks to copy before anything else.
        wanted: decoders only: ascending token indices whose logits are computed.
        sampling: per wanted row how to sample it; None returns its logits instead. All
            rows of a step are of one kind.
    """

    token_ids: array[int]
    seqs: Sequence[SeqRow]
    threads: int = 1
    block_tables: Sequence[array[int]] = ()
    copies: Sequence[tuple[int, int]] = ()
    wanted: Sequence[int] = ()
    sampling: Sequence[SamplingRow] | None = None


class Sampled(NamedTuple):
    """The token that one wanted row gave.

    Attributes:
        token_id: -1 where the logits were not finite.
        logprob: of the token, natural logarithm, after penalties, bias and mask, before
            temperature and the cuts.
        top: the most likely (id, logprob), best first.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class SeqStatus(IntEnum):
    OK = 0
    NON_FINITE = 1


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step computed.

    Attributes:
        output: C-contiguous f32 memoryview [rows, width] with ``format == 'f'``; rows are
            sequences, or tokens when the program's output slot holds tokens. A decoder's
            rows are the wanted ones, its width the vocabulary; without wanted rows, or
            when the step samples, it has no elements. Owned by the result: a later step
            does not change it.
        statuses: one `SeqStatus` per sequence, as bytes.
        device_ns: time inside the backend.
        sampled: decoders only: the tokens, one per wanted row, when the step samples.
    """

    output: memoryview[float]
    statuses: bytes
    device_ns: int
    sampled: tuple[Sampled, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutorLimits:
    """What one step may hold, fixed at load.

    Attributes:
        max_tokens: most tokens in a step.
        max_seqs: most sequences in a step.
        threads: most in a step: those of the pool, or 1 where they share no memory.
        concurrent_steps: most steps in flight at once; 1 for a decoder.
        kv_blocks: blocks of the key-value cache; 0 for an encoder.
        max_wanted: most wanted rows in a step; 0 for an encoder.
    """

    max_tokens: int
    max_seqs: int
    threads: int
    concurrent_steps: int
    kv_blocks: int = 0
    max_wanted: int = 0


@runtime_checkable
class ModelExecutor(Protocol):
    """A backend with a loaded model. `run` and `submit` may be mixed.

    A step outside the limits, with an id outside the vocabulary or a length past the
    program's positions raises `InvalidInput` before any work. A backend that dies
    raises `DeviceLost` from every call in flight and every later one.
    """

    @property
    def name(self) -> str: ...
    @property
    def limits(self) -> ExecutorLimits: ...

    def run(self, step: Step) -> StepResult:
        """Execute ``step`` on the calling thread (plus helpers) and return its result."""
        ...

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        """Start ``step`` and return; ``done`` is called once, from any thread, unless the
        step is refused here. What is wrong with a step inside the limits may be told to
        ``done`` instead.

        At most ``limits.concurrent_steps`` steps may be in flight.
        """
        ...

    def close(self) -> None:
        """Free everything. Idempotent; waits for steps in flight."""
        ...
