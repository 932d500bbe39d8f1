"""What the tiny decoder must say, from logits of whole sequences in numpy."""

from __future__ import annotations

from tests.generation.tiny import CHARS, SPECIAL, greedy


def ids_of(text: str) -> tuple[int, ...]:
    """Ids of a plain prompt: one a character."""
    return tuple(len(SPECIAL) + CHARS.index(c) for c in text)


def chat_ids(user: str) -> tuple[int, ...]:
    """Ids of a chat with one message, as the template puts it."""
    start, end = SPECIAL.index("<|im_start|>"), SPECIAL.index("<|im_end|>")
    opening = (start, *ids_of("user\n"), *ids_of(user), end, *ids_of("\n"))
    return (*opening, start, *ids_of("assistant\n"))


def text_of(ids: tuple[int, ...]) -> str:
    return "".join(CHARS[i - len(SPECIAL)] for i in ids if 0 <= i - len(SPECIAL) < len(CHARS))


def continuation(prompt: tuple[int, ...], max_tokens: int) -> str:
    """The most likely text after ``prompt``."""
    return text_of(greedy(prompt, max_tokens))
