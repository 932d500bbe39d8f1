"""Token ids to text while they come: no broken character, no trace of a stop string."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
"""Ids to text, special tokens left out."""

_BROKEN = "\ufffd"


class Detokenizer:
    """Text of a growing list of ids; what `feed` and `flush` return joins to its decoding
    (byte-fallback tokens that make no UTF-8 excepted: they undo their neighbours' text).

    A character whose bytes are spread over several tokens comes with the last of them.
    How a token reads can depend on the one before it (a leading space, say), so the
    decoder always sees the tokens of the last piece as well.
    """

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = 0  # where the last piece's tokens begin
        self._seen = 0  # where the tokens begin that are not read yet
        self._before = ""  # text of the last piece's tokens

    def feed(self, token_id: int) -> str:
        """Take in a token; the text that is certain now."""
        ids = self._ids
        ids.append(token_id)
        text = self._decode(ids[self._start :])
        if text.endswith(_BROKEN) or len(text) <= len(self._before):
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """The end: what was held back, a broken character as U+FFFD."""
        if self._seen == len(self._ids):
            return ""
        return self._advance(self._decode(self._ids[self._start :]))

    def _advance(self, text: str) -> str:
        piece = text[len(self._before) :]
        self._start, self._seen = self._seen, len(self._ids)
        self._before = self._decode(self._ids[self._start :])
        return piece


class StopMatcher:
    """Passes text on until a stop string appears in it, across whatever borders.

    Args:
        stops: the strings, none of them empty.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """What may be shown of the text so far; nothing from the first stop string on."""
        if self.stopped:
            return ""
        text = self._held + text
        found = [at for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        held = max(
            (n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n])),
            default=0,
        )
        self._held = text[len(text) - held :]
        return text[: len(text) - held]

    def flush(self) -> str:
        """The end without a stop string: what only looked like the start of one."""
        held, self._held = self._held, ""
        return held


class TextReader:
    """A sample's ids as the text that its owner sees.

    Attributes:
        stopped: a stop string appeared.
    """

    def __init__(self, decode: Decode, stops: Sequence[str]) -> None:
        self._tokens = Detokenizer(decode)
        self._stops = StopMatcher(stops) if stops else None

    @property
    def stopped(self) -> bool:
        return self._stops is not None and self._stops.stopped

    def feed(self, token_id: int) -> str:
        text = self._tokens.feed(token_id)
        return text if self._stops is None else self._stops.feed(text)

    def flush(self) -> str:
        text = self._tokens.flush()
        if self._stops is None:
            return text
        return self._stops.feed(text) + self._stops.flush()
