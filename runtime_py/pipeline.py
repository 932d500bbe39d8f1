"""Texts on their way through tokenizer and engine, piece by piece, in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from runtime_py._compat import Worker
from runtime_py.engine import EncodeRequest, Engine
from runtime_py.errors import TooLong
from runtime_py.options import EncodeOptions
from runtime_py.tokenization import Encoded, Tokenizer

_INLINE_CHARS = 4096
"""Tokenizing this much costs less than handing it to a thread and back."""


class Piece(NamedTuple):
    """A finished piece: f32 rows in ``request.output``, and its texts' tokens."""

    request: EncodeRequest
    encoded: list[Encoded]


class Pipeline:
    """Pieces in flight, oldest first. `push` feeds, `pop` waits, `abort` ends it all.

    Attributes:
        num_texts: texts pushed and not yet popped.
    """

    def __init__(
        self, engine: Engine, tokenizer: Tokenizer, worker: Worker, options: EncodeOptions
    ) -> None:
        self.num_texts = 0
        self._engine = engine
        self._tokenizer = tokenizer
        self._worker = worker
        self._options = options
        self._pushed = 0
        self._pieces: deque[Piece] = deque()

    def __len__(self) -> int:
        """Pieces in flight."""
        return len(self._pieces)

    async def push(self, texts: Sequence[str], *, wait: bool) -> None:
        """Tokenize a piece and submit it.

        Args:
            wait: wait for room in the queue, instead of ending as `Overloaded`.

        Raises:
            InvalidInput, TooLong: a text is wrong; the message names its index.
            Aborted: the engine is closed.
        """
        options = self._options
        encoded = await self._encode(texts)
        if options.truncate == "error":
            self._refuse_long(encoded)
        if wait:
            await self._engine.wait_for_room(len(texts), options.traffic)
        request = self._engine.submit(
            [e.ids for e in encoded],
            pool_skips=self._pool_skips(encoded),
            traffic=options.traffic,
            deadline_ns=options.deadline_ns,
            latency_target_ns=options.latency_target_ns,
            tenant=options.tenant,
            first_index=self._pushed,
        )
        self._pushed += len(texts)
        self.num_texts += len(texts)
        self._pieces.append(Piece(request, encoded))

    async def pop(self) -> Piece:
        """Wait for the oldest piece. Raises what `Engine.result` raises."""
        piece = self._pieces[0]
        await self._engine.result(piece.request)
        self._pieces.popleft()
        self.num_texts -= len(piece.encoded)
        return piece

    def abort(self) -> None:
        """Drop whatever is in flight. Idempotent."""
        for piece in self._pieces:
            self._engine.abort(piece.request)
        self._pieces.clear()

    async def _encode(self, texts: Sequence[str]) -> list[Encoded]:
        prompt = self._options.prompt
        inputs = [prompt + text for text in texts] if prompt else texts
        if sum([len(text) for text in inputs]) <= _INLINE_CHARS:
            return self._tokenizer.encode(inputs)
        return await self._worker.run(self._tokenizer.encode, inputs)

    def _pool_skips(self, encoded: Sequence[Encoded]) -> list[int] | None:
        options = self._options
        if not (options.prompt and options.exclude_prompt):
            return None
        skip = self._tokenizer.prompt_length(options.prompt)
        return [min(skip, len(e.ids) - 1) for e in encoded]

    def _refuse_long(self, encoded: Sequence[Encoded]) -> None:
        limit = self._tokenizer.max_tokens
        for i, e in enumerate(encoded):
            if e.num_tokens > limit:
                raise TooLong(
                    f"texts[{self._pushed + i}] has {e.num_tokens} tokens, the model takes "
                    f"{limit}; shorten it or use truncate='end'",
                    num_tokens=e.num_tokens,
                    max_tokens=limit,
                )
