"""What a client asks for, and what it writes down about the answer."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime_py import Model
from toolchain.bench.closed_loop import Window
from toolchain.quantize.corpus import EVALUATION, texts

_CORPUS_TEXTS = 400


@dataclass(slots=True)
class Observations:
    """Of the requests that began while the window was open; times in milliseconds.

    Attributes:
        latency: from the call to its end.
        queue: from the call to its first step.
        ttft, tpot: decoders: to the first token; mean time between the tokens of an answer.
        itl: decoders: every time between two tokens, as their reader saw it.
        input_tokens, output_tokens, texts: that were finished while the window was open.
        requests: that ended, in the window or after it.
    """

    latency: list[float] = field(default_factory=list)
    queue: list[float] = field(default_factory=list)
    ttft: list[float] = field(default_factory=list)
    tpot: list[float] = field(default_factory=list)
    itl: list[float] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    texts: int = 0
    requests: int = 0


class Client(Protocol):
    """Sends requests of one kind to a model."""

    async def request(self, number: int, window: Window, seen: Observations) -> None:
        """Send request ``number``, wait for the answer, write down what counts."""
        ...


class DecoderClient:
    """Asks for texts of a fixed length.

    Args:
        prompt_tokens: ids of a prompt: random ones, different in every request.
        output_tokens: tokens of an answer; the model's own end does not count.
        shared_prefix: leading ids that all prompts have in common.
        seed: of the ids.
    """

    def __init__(
        self,
        model: Model,
        *,
        prompt_tokens: int,
        output_tokens: int,
        shared_prefix: int = 0,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._model = model
        self._output_tokens = output_tokens
        self._temperature = temperature
        self._own = prompt_tokens - shared_prefix
        self._seed = seed
        self._prefix = _ids(random.Random(seed), shared_prefix, model.info.vocab_size)

    async def request(self, number: int, window: Window, seen: Observations) -> None:
        """One prompt, its answer read token by token."""
        rng = random.Random(f"{self._seed} {number}")
        prompt = self._prefix + _ids(rng, self._own, self._model.info.vocab_size)
        began = last = time.monotonic()
        counts = window.contains(began)
        stream = self._model.generate(
            prompt,
            max_tokens=self._output_tokens,
            temperature=self._temperature,
            seed=number,
            ignore_eos=True,
        )
        first = True
        async for _ in stream:
            now = time.monotonic()
            if window.contains(now):
                seen.output_tokens += 1
                seen.input_tokens += len(prompt) if first else 0
            if counts and not first:
                seen.itl.append((now - last) * 1e3)
            first, last = False, now
        if counts:
            result = await stream
            seen.requests += 1
            seen.latency.append((time.monotonic() - began) * 1e3)
            seen.queue.append(result.queue_ms)
            seen.ttft.append(result.ttft_ms)
            if result.usage.completion_tokens > 1:
                seen.tpot.append(result.completions[0].tpot_ms)


class EncoderClient:
    """Asks for vectors of English texts of about a length.

    Args:
        words: of a text; `make` finds how many give a number of tokens.
        per_request: texts of a request.
        seed: of the choice of texts.
    """

    def __init__(self, model: Model, words: int, *, per_request: int = 1, seed: int = 0) -> None:
        self._model = model
        self._words = words
        self._per_request = per_request
        self._seed = seed
        self._corpus = " ".join(texts(EVALUATION, _CORPUS_TEXTS)).split()

    @classmethod
    async def make(
        cls, model: Model, *, tokens: int, per_request: int = 1, seed: int = 0
    ) -> EncoderClient:
        """A client whose texts have about ``tokens`` tokens: the tokenizer is asked."""
        low, high = 1, max(tokens, 1)
        while low < high:
            middle = (low + high + 1) // 2
            probe = cls(model, middle, per_request=8, seed=seed)
            counts = (await model.embed_with_info(probe.batch(0))).token_counts
            if sum(counts) / len(counts) <= tokens:
                low = middle
            else:
                high = middle - 1
        return cls(model, low, per_request=per_request, seed=seed)

    def batch(self, number: int) -> Sequence[str]:
        """The texts of request ``number``: stretches of words from the evaluation corpus."""
        rng = random.Random(f"{self._seed} {number}")
        starts = [rng.randrange(len(self._corpus) - self._words) for _ in range(self._per_request)]
        return [" ".join(self._corpus[s : s + self._words]) for s in starts]

    async def request(self, number: int, window: Window, seen: Observations) -> None:
        """One call of `Model.embed_with_info`."""
        batch = self.batch(number)
        began = time.monotonic()
        result = await self._model.embed_with_info(batch)
        ended = time.monotonic()
        if window.contains(ended):
            seen.texts += len(batch)
            seen.input_tokens += sum(result.token_counts)
        if window.contains(began):
            seen.requests += 1
            seen.latency.append((ended - began) * 1e3)
            seen.queue.append(result.queue_ms)


def _ids(rng: random.Random, count: int, vocab_size: int) -> list[int]:
    return [rng.randrange(vocab_size) for _ in range(count)]
