"""Checking what callers pass as texts, and cutting it into pieces."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence

from runtime_py.errors import InvalidType

MAX_PIECE_TEXTS = 128
MAX_PIECE_CHARS = 1 << 18


def check_text(text: object, index: int) -> str:
    """``text`` if it is a str.

    Raises:
        InvalidType: names the index and the type.
    """
    if not isinstance(text, str):
        raise InvalidType(f"texts[{index}] is {type(text).__name__}, expected str")
    return text


def pieces(texts: Sequence[str], max_texts: int = MAX_PIECE_TEXTS) -> Iterator[Sequence[str]]:
    """Cut ``texts`` where a count or a number of characters is reached."""
    start = chars = 0
    for i, text in enumerate(texts):
        if i > start and (i - start >= max_texts or chars + len(text) > MAX_PIECE_CHARS):
            yield texts[start:i]
            start, chars = i, 0
        chars += len(text)
    if start < len(texts):
        yield texts[start:] if start else texts


def checked(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, bytes | bytearray | Mapping) or not isinstance(texts, Iterable):
        raise InvalidType(f"texts is {type(texts).__name__}, expected str or an iterable of str")
    return [check_text(text, i) for i, text in enumerate(texts)]


async def _each(texts: Iterable[str] | AsyncIterable[str]) -> AsyncIterator[str]:
    if isinstance(texts, AsyncIterable):
        async for text in texts:
            yield text
    elif isinstance(texts, bytes | bytearray | Mapping) or not isinstance(texts, Iterable):
        raise InvalidType(f"texts is {type(texts).__name__}, expected an iterable of str")
    else:
        for text in texts:
            yield text


async def gather(texts: Iterable[str] | AsyncIterable[str], size: int) -> AsyncIterator[list[str]]:
    """Checked pieces of at most ``size`` texts, cut early where a piece gets large."""
    piece: list[str] = []
    index = chars = 0
    async for item in _each(texts):
        text = check_text(item, index)
        index += 1
        if piece and (len(piece) >= size or chars + len(text) > MAX_PIECE_CHARS):
            yield piece
            piece, chars = [], 0
        piece.append(text)
        chars += len(text)
    if piece:
        yield piece
