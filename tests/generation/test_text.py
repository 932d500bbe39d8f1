"""Streams of text: whole characters, no trace of a stop string."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from runtime_py.generation.text import Detokenizer, StopMatcher, TextReader
from runtime_py.generation.tokenizer import HFTextTokenizer


def byte_level() -> HFTextTokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {c: i for i, c in enumerate(alphabet)}
    fast = Tokenizer(models.BPE(vocab, [], unk_token=None))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(["<eos>"])
    return HFTextTokenizer(fast.to_str())


def sentencepiece_like() -> HFTextTokenizer:
    """Words that begin with a mark for a space, and a token for every byte."""
    words = ["▁a", "▁bc", "d", "▁", "é", "▁the", "<unk>"]
    vocab = {w: i for i, w in enumerate([*words, *[f"<0x{b:02X}>" for b in range(256)]])}
    fast = Tokenizer(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    fast.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return HFTextTokenizer(fast.to_str())


def streamed(tokenizer: HFTextTokenizer, ids: list[int]) -> list[str]:
    reader = Detokenizer(tokenizer.decode)
    return [*[reader.feed(i) for i in ids], reader.flush()]


@pytest.mark.parametrize(
    "text", ["A\n单发 👩‍🚀", "naïve café", " \ufffd", "\ufffd\ufffd", "👩‍👩‍👧‍👦 ok", ""]
)
def test_G1_a_stream_never_splits_a_character(text: str) -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode(text)
    pieces = streamed(tokenizer, ids)
    assert "".join(pieces) == text == tokenizer.decode(ids)
    if "\ufffd" not in text:
        assert all("\ufffd" not in p for p in pieces)
    for cut in range(len(ids)):  # also when it ends in the middle of a character
        assert "".join(streamed(tokenizer, ids[:cut])) == tokenizer.decode(ids[:cut])


def test_G1_random_ids_stream_as_they_decode() -> None:
    tokenizer, rng = byte_level(), random.Random(5)
    size = tokenizer._fast.get_vocab_size()
    for _ in range(300):
        ids = [rng.randrange(size) for _ in range(rng.randrange(40))]
        assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


def test_G1_byte_fallback_streams_characters_with_their_last_byte() -> None:
    """The library turns a run of bytes that is not UTF-8 into U+FFFD as a whole, so that a
    stream can equal it only for bytes that make characters, as far as they go."""
    tokenizer, rng = sentencepiece_like(), random.Random(6)
    first = tokenizer._fast.token_to_id("<0x00>")
    chars = "aé单👩\u0301 z"
    for _ in range(300):
        ids: list[int] = []
        for _ in range(rng.randrange(12)):
            if rng.random() < 0.5:
                ids.append(rng.randrange(6))
            else:
                ids += [first + b for b in rng.choice(chars).encode()]
        pieces = streamed(tokenizer, ids)
        assert "".join(pieces) == tokenizer.decode(ids)
        assert all("\ufffd" not in p for p in pieces)


def test_special_tokens_have_no_text() -> None:
    tokenizer = byte_level()
    ids = tokenizer.encode("ab<eos>c")
    assert streamed(tokenizer, ids) == ["a", "b", "", "c", ""]


@given(st.text("ab\n", max_size=30), st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3))
@settings(max_examples=300)
def test_stop_strings_end_the_text_wherever_it_is_cut(text: str, stops: list[str]) -> None:
    whole = min([text.find(s) for s in stops if s in text], default=len(text))
    for size in (1, 2, 3, 7, 100):
        matcher = StopMatcher(stops)
        shown = ""
        for i in range(0, len(text), size):
            shown += matcher.feed(text[i : i + size])
            assert text.startswith(shown)
            if matcher.stopped:
                break
        assert matcher.stopped == (whole < len(text))
        if not matcher.stopped:
            shown += matcher.flush()
        # pieces of more than one character may complete a later-found, longer stop first
        if size == 1:
            first = min([text.find(s) + len(s) for s in stops if s in text], default=0)
            ended = [text.find(s) for s in stops if s in text[:first]]
            assert shown == text[: min(ended)] if ended else shown == text
        else:
            assert shown == text[: len(shown)]
            assert matcher.stopped or shown == text


def test_what_only_looked_like_a_stop_string_is_shown_at_the_end() -> None:
    tokenizer = byte_level()
    reader = TextReader(tokenizer.decode, ["###"])
    shown = [reader.feed(i) for i in tokenizer.encode("a##b##")]
    assert shown == ["a", "", "", "##b", "", ""]
    assert reader.flush() == "##"
