"""`HFTokenizer` against the library's own truncation, and its errors."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from runtime_py import ArtifactCorrupt, InvalidInput
from runtime_py.tokenization import HFTokenizer
from tests.engine.tiny import MAX_TOKENS, ids_of, tokenizer_json

OURS = HFTokenizer(tokenizer_json(), MAX_TOKENS)
UNLIMITED = Tokenizer.from_str(tokenizer_json())
UNLIMITED.no_padding()
UNLIMITED.no_truncation()


@settings(max_examples=200)
@given(st.lists(st.text("ab c\u200bé漢\n", max_size=120), max_size=6))
def test_ids_and_counts(texts: list[str]) -> None:
    encoded = OURS.encode(texts)
    assert len(encoded) == len(texts)
    for text, e in zip(texts, encoded, strict=True):
        assert e.ids == ids_of(text)
        assert e.num_tokens == len(UNLIMITED.encode(text).ids)


def test_settings_inside_the_file_do_not_count() -> None:
    stored = json.loads(tokenizer_json())
    assert stored["truncation"]["max_length"] == 7
    assert stored["padding"] is not None
    assert OURS.encode(["a" * 20])[0].ids == ids_of("a" * 20)


def test_exactly_at_the_limit_nothing_is_cut() -> None:
    at, over = OURS.encode(["a" * (MAX_TOKENS - 2), "a" * (MAX_TOKENS - 1)])
    assert (len(at.ids), at.num_tokens) == (MAX_TOKENS, MAX_TOKENS)
    assert (len(over.ids), over.num_tokens) == (MAX_TOKENS, MAX_TOKENS + 1)


def test_prompt_length_leaves_out_a_closing_special_token() -> None:
    assert OURS.prompt_length("q: ") == 3
    assert OURS.prompt_length("") == 1


def test_broken_files_and_limits_are_typed() -> None:
    for text in ("", "{}", "not json", tokenizer_json()[:100]):
        with pytest.raises(ArtifactCorrupt, match=r"tokenizer\.json"):
            HFTokenizer(text, 10)
    with pytest.raises(ArtifactCorrupt, match="2 special tokens"):
        HFTokenizer(tokenizer_json(), 2)


def test_a_lone_surrogate_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"texts\[1\].*character 2"):
        OURS.encode(["fine", "ab\udfff"])
