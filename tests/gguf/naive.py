"""Slow tokenizers, written from the papers: the truth for the fast ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")


def byte_characters() -> dict[int, str]:
    """GPT-2's printable stand-in for every byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


def split(pattern: str, text: str) -> list[str]:
    """Matches and what lies between them."""
    pieces, at = [], 0
    for match in regex.finditer(pattern, text):
        pieces += [text[at : match.start()], match[0]]
        at = match.end()
    return [p for p in [*pieces, text[at:]] if p]


def byte_level(
    text: str,
    patterns: Sequence[str],
    vocab: Mapping[str, int],
    merges: Mapping[tuple[str, str], int],
    ignore_merges: bool = False,
) -> list[int]:
    """Split by each pattern in turn, then join the pair of the lowest rank, leftmost first."""
    words = [text]
    for pattern in patterns:
        words = [piece for word in words for piece in split(pattern, word)]
    table, ids = byte_characters(), []
    for word in words:
        parts = [table[b] for b in word.encode()]
        if ignore_merges and "".join(parts) in vocab:
            ids.append(vocab["".join(parts)])
            continue
        while True:
            ranked = [
                (rank, i)
                for i, pair in enumerate(pairwise(parts))
                if (rank := merges.get(pair)) is not None
            ]
            if not ranked:
                break
            _, i = min(ranked)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        ids += [vocab[p] for p in parts]
    return ids


def sentencepiece(
    text: str, vocab: Mapping[str, int], scores: Sequence[float], user: Sequence[str], prefix: bool
) -> list[int]:
    """Join the best-scoring neighbours, leftmost first; unknown characters become bytes."""
    text = ("▁" if prefix and text else "") + text.replace(" ", "▁")
    ids: list[int] = []
    frozen = "|".join(map(regex.escape, sorted(user, key=len, reverse=True)))
    for piece in split(frozen, text) if frozen else [text]:
        if piece in user:
            ids.append(vocab[piece])
            continue
        parts = list(piece)
        while True:
            scored = [
                (-scores[vocab[a + b]], i)
                for i, (a, b) in enumerate(pairwise(parts))
                if a + b in vocab
            ]
            if not scored:
                break
            _, i = min(scored)
            parts[i : i + 2] = [parts[i] + parts[i + 1]]
        for part in parts:
            known = vocab.get(part)
            ids += [vocab[f"<0x{b:02X}>"] for b in part.encode()] if known is None else [known]
    return ids
