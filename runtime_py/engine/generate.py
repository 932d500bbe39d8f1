"""A generation on the engine's side: its samples, their text, and the facts about it."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter, deque
from collections.abc import Sequence

from runtime_py.batching import FinishReason, RequestFinished
from runtime_py.engine.request import NS_PER_MS, error_of_any
from runtime_py.errors import InvalidInput, NeverFits, NonFinite, Overloaded, VoleryError
from runtime_py.executors.base import Sampled, SamplingRow
from runtime_py.generation.options import GenerateOptions
from runtime_py.generation.text import Decode, TextReader


class SampleState:
    """One continuation.

    Attributes:
        tokens: ids that were emitted, the stop token included.
        fresh: what came and was not read: the token, and its text where a stop string had
            to be looked for before the next step.
        table: its blocks in the key-value cache.
        finish_reason: ``"stop"`` or ``"length"`` once it ended.
        reader: turns its ids into text.
        first_ns, last_ns: when its first and its last token came.
    """

    __slots__ = (
        "counts",
        "finish_reason",
        "first_ns",
        "fresh",
        "index",
        "last_ns",
        "reader",
        "row",
        "table",
        "texts",
        "tokens",
    )

    def __init__(self, index: int, reader: TextReader, row: SamplingRow) -> None:
        self.index = index
        self.reader = reader
        self.row = row
        self.tokens: list[int] = []
        self.fresh: deque[Sampled] = deque()
        self.texts: deque[str] = deque()
        self.table = array("i")
        self.counts: Counter[int] = Counter()
        self.finish_reason: str | None = None
        self.first_ns = self.last_ns = 0


class GenerateRequest:
    """`Engine.generate` makes it; a stream reads it.

    Attributes:
        lane: the model's name on the device.
        aborted: its owner does not want it any more.
        future: done when the request ended; raises why it failed.
        queue_ns: from arrival to its first step, -1 before.
        cached_tokens: tokens of the prompt that were not computed again.
        waiter: who waits for the next `wake`.
        penalizes: what came before a token makes it less likely to come again.
        same_rows: how a token is sampled does not depend on what came before it, so
            `SampleState.row` is right for all of them.
    """

    __slots__ = (
        "_prompt_counts",
        "aborted",
        "arrival_ns",
        "cached_tokens",
        "future",
        "lane",
        "options",
        "penalizes",
        "prompt",
        "queue_ns",
        "request_id",
        "same_rows",
        "samples",
        "stop_ids",
        "waiter",
    )

    def __init__(
        self,
        request_id: int,
        lane: str,
        prompt: Sequence[int],
        options: GenerateOptions,
        stop_ids: tuple[int, ...],
        decode: Decode,
        future: asyncio.Future[None],
        arrival_ns: int,
    ) -> None:
        self.request_id = request_id
        self.lane = lane
        self.aborted = False
        self.prompt = prompt
        self.options = o = options
        self.stop_ids = stop_ids
        self.future = future
        self.arrival_ns = arrival_ns
        self.queue_ns = -1
        self.cached_tokens = 0
        self.waiter: asyncio.Future[None] | None = None
        penalties = (o.repetition_penalty, o.presence_penalty, o.frequency_penalty)
        self.penalizes = penalties != (1.0, 0.0, 0.0)
        self._prompt_counts = Counter(prompt) if self.penalizes else Counter()
        self.same_rows = not (o.temperature > 0 or self.penalizes or o.logits_mask is not None)
        row = SamplingRow(
            o.temperature,
            o.top_k,
            o.top_p,
            o.min_p,
            *penalties,
            (),
            o.logit_bias,
            None,
            o.seed,
            0,
            max(o.top_logprobs, 0),
        )
        self.samples = [
            SampleState(
                i, TextReader(decode, o.stop), row._replace(seed=(o.seed + i) % 2**64) if i else row
            )
            for i in range(o.n)
        ]

    def sampling_row(self, sample: SampleState, position: int) -> SamplingRow:
        """How to sample the token at ``position``.

        Raises:
            InvalidInput: the mask hook returned something that is no mask.
        """
        penalized: Sequence[tuple[int, int, int]] = ()
        if self.penalizes:
            before, own = self._prompt_counts, sample.counts
            ids = sorted({*before, *own})
            penalized = [(i, before[i], own[i]) for i in ids]
        mask = None
        if self.options.logits_mask is not None:
            mask = self.options.logits_mask(tuple(sample.tokens))
            if mask is not None and not isinstance(mask, bytes):
                raise InvalidInput(
                    f"logits_mask returned {type(mask).__name__}, expected bytes or None"
                )
        row = sample.row
        return SamplingRow(*row[:7], penalized, row.bias, mask, row.seed, position, row[12])

    def look_for_stop(self, sample: SampleState, token_id: int) -> bool:
        """Read a token before the next step is scheduled; whether a stop string ends it."""
        text = "" if token_id in self.stop_ids or token_id < 0 else sample.reader.feed(token_id)
        sample.texts.append(text)
        return sample.reader.stopped

    def wake(self) -> None:
        """Tell the reader that there is something new."""
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def changed(self) -> asyncio.Future[None]:
        """Done at the next `wake`."""
        self.waiter = self.future.get_loop().create_future()
        return self.waiter


def generation_error(
    request: GenerateRequest, finished: RequestFinished, cause: BaseException | None
) -> VoleryError | BaseException:
    """The typed error for a generation that ended without a result."""
    match finished.reason:
        case FinishReason.NEVER_FITS if finished.item >= 0:
            return NeverFits(
                f"the prompt has {len(request.prompt)} tokens, the context and the key-value "
                f"cache hold {finished.value} and a new one; shorten it or load the model "
                "with more kv_blocks"
            )
        case FinishReason.NEVER_FITS:
            return NeverFits(
                f"n is {request.options.n}, expected at most {finished.value}: the sequences "
                "that may run at once or wait"
            )
        case FinishReason.OVERLOADED:
            ms = finished.value / NS_PER_MS
            return Overloaded(
                f"the queue is full; try again in about {ms:.0f} ms", retry_after_ms=ms
            )
        case FinishReason.NON_FINITE:
            return NonFinite(
                "the model computed NaN or infinity for this prompt, expected finite numbers; "
                "check the exported weights"
            )
    return error_of_any(finished, cause, "the sequence")
