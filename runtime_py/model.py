"""The public face of a loaded model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn, Self, Unpack

from runtime_py._compat import Worker
from runtime_py.engine import Engine, EngineStats
from runtime_py.errors import Aborted, InvalidInput, InvalidType
from runtime_py.generation.generator import Generator, closed, not_a_generator
from runtime_py.generation.options import GenerateArguments
from runtime_py.generation.stream import GenerationStream
from runtime_py.info import ModelInfo
from runtime_py.options import (
    EmbedOptions,
    EncodeOptions,
    Traffic,
    Truncate,
    deadline_span_ns,
    encode_options,
    vector_format,
)
from runtime_py.pipeline import Piece, Pipeline
from runtime_py.results import DType, EmbedResult, VectorFormat
from runtime_py.texts import MAX_PIECE_TEXTS, checked, gather, pieces
from runtime_py.tokenization import Tokenizer

_BULK_WINDOW = 1024


class Model:
    """A loaded model: it embeds or it generates. Make one with `runtime_py.load`.

    All methods belong to the event loop that loaded it. Calls may run concurrently, and
    are batched together; a result never depends on what else was in the batch. Use it
    as an async context manager, or `close` it.

    Attributes:
        info: sizes, limits and backend.
    """

    def __init__(
        self,
        engine: Engine,
        tokenizer: Tokenizer | None,
        info: ModelInfo,
        *,
        generator: Generator | None = None,
    ) -> None:
        self.info = info
        self._engine = engine
        self._tokenizer = tokenizer
        self._generator = generator
        self._worker = Worker(2)
        self._loop = asyncio.get_running_loop()
        self._closed = False

    async def embed(self, texts: str | Iterable[str], **options: Unpack[EmbedOptions]) -> Any:
        """Embed one text or many.

        Args:
            texts: a str, or an iterable of str. A long list is fed to the queue in pieces.
            prompt_name: which of the model's prompts to put before every text; None =
                the model's default, if it has one.
            prompt: the prompt itself, instead of a name; ``""`` = none.
            dimensions: keep this many leading dimensions (and normalise again, if the
                model does).
            normalize: True scales vectors to length 1; None = what the model does.
            dtype: ``"float32"`` or ``"float16"``.
            truncate: ``"end"`` cuts a text that is too long (`embed_with_info` tells),
                ``"error"`` refuses it.
            traffic: ``"latency"`` when somebody waits for the answer, ``"throughput"``
                for bulk work that yields to it.
            deadline_ms: fail as soon as the result cannot be there in this time.
            latency_target_ms: wish to have it in this time (beyond what it takes alone);
                None = as the model is configured. Decides who goes first, fails nothing.
            tenant: on whose behalf; tenants share the device fairly.

        Returns:
            numpy array [n, dimensions], or [dimensions] for a str; without numpy a list of
            f32 memoryviews, or one.

        Raises:
            InvalidType: a text is not a str; names the index.
            InvalidInput: an option is outside its range.
            TooLong: with ``truncate="error"``.
            Overloaded: the queue is full.
            DeadlineExceeded, NonFinite, OutOfMemory, DeviceLost, Aborted: see
                `runtime_py.errors`.
        """
        return (await self.embed_with_info(texts, **options)).vectors

    async def embed_with_info(
        self,
        texts: str | Iterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        dtype: DType = "float32",
        truncate: Truncate = "end",
        traffic: Traffic = "latency",
        deadline_ms: float | None = None,
        latency_target_ms: float | None = None,
        tenant: str = "",
    ) -> EmbedResult:
        """`embed`, with token counts, truncation, timing and batching facts."""
        options = encode_options(
            self.info,
            prompt_name,
            prompt,
            truncate,
            traffic,
            self._deadline(deadline_ms),
            latency_target_ms,
            tenant,
        )
        form = vector_format(self.info, dimensions, normalize, dtype)
        single = isinstance(texts, str)
        items = [texts] if isinstance(texts, str) else checked(texts)
        pipeline = self._pipeline(options)
        done: list[Piece] = []
        try:
            if items:
                cut = list(pieces(items, self._max_piece()))
                for piece in cut:
                    while pipeline.num_texts + len(piece) > _BULK_WINDOW and len(pipeline):
                        done.append(await pipeline.pop())
                    await pipeline.push(piece, wait=len(cut) > 1)
            while len(pipeline):
                done.append(await pipeline.pop())
        finally:
            pipeline.abort()
        return self._result(done, form, single)

    async def embed_stream(
        self,
        texts: Iterable[str] | AsyncIterable[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        dimensions: int | None = None,
        normalize: bool | None = None,
        dtype: DType = "float32",
        truncate: Truncate = "end",
        traffic: Traffic = "throughput",
        window: int = _BULK_WINDOW,
    ) -> AsyncIterator[Any]:
        """Embed texts as they come: one vector per text, in order, in bounded memory.

        Args:
            texts: an iterable or an async iterable of str. It is read ahead of the results,
                up to the window; for a live source call `embed` for each text instead.
            window: most texts in flight; a slow consumer holds the reading back.

        Raises:
            What `embed` raises; vectors of earlier texts have been yielded by then.
        """
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise InvalidInput(f"window is {window!r}, expected a whole number from 1")
        if isinstance(texts, str):
            raise InvalidType("texts is a str, expected an iterable of str; use embed")
        options = encode_options(self.info, prompt_name, prompt, truncate, traffic, -1)
        form = vector_format(self.info, dimensions, normalize, dtype)
        size = min(self._max_piece(), max(window // 4, 1))
        pipeline = self._pipeline(options)
        try:
            async for piece in gather(texts, size):
                while len(pipeline) and pipeline.num_texts + len(piece) > window:
                    for row in form.rows((await pipeline.pop()).request.output):
                        yield row
                await pipeline.push(piece, wait=True)
            while len(pipeline):
                for row in form.rows((await pipeline.pop()).request.output):
                    yield row
        finally:
            pipeline.abort()

    def generate(
        self, prompt: str | Sequence[int], **options: Unpack[GenerateArguments]
    ) -> GenerationStream:
        """Continue a prompt.

        ``async for piece in model.generate(...)`` yields a `TextPiece` per token,
        ``await model.generate(...)`` the whole `GenerateResult`. Every option is checked
        here, before any work. With the default temperature the text depends on the prompt
        alone; otherwise on the prompt, the options and the seed, never on other requests.

        Args:
            prompt: text, in which control tokens count as such, or token ids.
            max_tokens: most tokens per sample; None = what the context leaves.
            temperature: 0 = always the most likely token.
            top_k, top_p, min_p: which tokens may be sampled; 0, 1 and 0 allow all.
            repetition_penalty: above 1 makes tokens of prompt and answer less likely.
            presence_penalty, frequency_penalty: subtracted from logits of the answer's
                tokens, once and per occurrence.
            logit_bias: token id -> number added to its logit.
            logits_mask: called before every token with the ids so far; returns the tokens
                that may follow as bits, or None (see `LogitsMask`).
            logprobs: True reports every token's log-probability, a number (up to 20) also
                the most likely tokens.
            n: samples; they share the prompt's computation.
            seed: 64 bits; None draws one, which the result names.
            stop: strings that end a sample; nothing of them is in its text.
            stop_token_ids: ids that end a sample, besides the model's own.
            ignore_eos: the model's own do not.
            traffic: ``"latency"`` or ``"throughput"``.
            deadline_ms: fail when the answer is not complete in this time.
            ttft_target_ms: wish to have the first token in this time (beyond what the
                prompt takes alone), tpot_target_ms: and every next one in this; None = as
                the model is configured. They decide who goes first and how much of others'
                prompts a step holds, and fail nothing.
            tenant: on whose behalf; tenants share the device fairly.
            cache_salt: computed prefixes are shared only among equal ones.

        Raises:
            InvalidInput, InvalidType, TooLong: an argument is outside its range.
            And from the stream: Overloaded, NeverFits, DeadlineExceeded, NonFinite,
            OutOfMemory, DeviceLost, Aborted.
        """
        return self._generating().generate(prompt, **options)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
        **options: Unpack[GenerateArguments],
    ) -> GenerationStream:
        """Answer a chat: `generate` on the prompt that the model's template makes of it.

        Control tokens inside messages are text: nobody can forge a turn.

        Args:
            messages: dicts with ``role`` (system, developer, user, assistant or tool) and
                ``content`` (a str, or a list of text parts).
            tools: descriptions for templates that know tools.
            template_options: further names for the template.
            options: as `generate`'s.

        Raises:
            InvalidInput: also an unknown role, a template that refuses the messages, or a
                model without a template.
        """
        return self._generating().chat(
            messages, tools=tools, template_options=template_options, **options
        )

    def __reduce__(self) -> NoReturn:
        raise InvalidType("a loaded model cannot be copied or pickled; load it in every process")

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidInput(
                "the model belongs to another event loop; load it on this one, or with "
                "runtime_py.load_sync, whose models any thread may call"
            )

    def _generating(self) -> Generator:
        if self._closed:
            raise closed()
        self._check_loop()
        if self._generator is None:
            raise not_a_generator()
        return self._generator

    def stats(self) -> EngineStats:
        """Queue, batches and prediction quality, now and since loading."""
        return self._engine.stats()

    async def close(self, *, drain: bool = False) -> None:
        """Stop and free everything. Idempotent, and fine while calls are waiting.

        Args:
            drain: let submitted work finish; otherwise it ends with `Aborted`.

        Raises:
            InvalidInput: the model belongs to another event loop.
        """
        self._check_loop()
        self._closed = True
        await self._engine.close(drain=drain)
        self._worker.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _pipeline(self, options: EncodeOptions) -> Pipeline:
        if self._closed:
            raise Aborted("the model is closed; load it again")
        self._check_loop()
        if self._tokenizer is None:
            raise InvalidInput(
                "the model generates text, it makes no embeddings; load an embedding model"
            )
        return Pipeline(self._engine, self._tokenizer, self._worker, options)

    def _deadline(self, deadline_ms: float | None) -> int:
        """On the engine's clock; -1 = never."""
        span_ns = deadline_span_ns(deadline_ms)
        return -1 if span_ns < 0 else self._engine.now_ns() + span_ns

    def _max_piece(self) -> int:
        return min(MAX_PIECE_TEXTS, self._engine.max_queue_size)

    def _result(self, done: list[Piece], form: VectorFormat, single: bool) -> EmbedResult:
        requests = [piece.request for piece in done]
        encoded = [e for piece in done for e in piece.encoded]
        output = requests[0].output if len(requests) == 1 else bytearray()
        if len(requests) > 1:
            output = bytearray().join([r.output for r in requests])
        vectors = form.rows(output)
        return EmbedResult(
            vectors[0] if single else vectors,
            [len(e.ids) for e in encoded],
            [e.num_tokens > len(e.ids) for e in encoded],
            requests[0].queue_ns / 1e6 if requests else 0.0,
            sum([r.device_ns for r in requests]) / 1e6,
            sum([r.steps for r in requests]),
            max([r.batch_seqs for r in requests], default=0),
            max([r.batch_tokens for r in requests], default=0),
        )
