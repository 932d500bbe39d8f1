"""Tokenizers from GGUF metadata against slow ones written from the papers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from tests.gguf import naive
from tests.gguf.builders import write
from toolchain.sources.gguf import GgufFile, GgufTokenizer, load_tokenizer

TEXTS = [
    "", " ", "Hello world", "hello  WORLD's it's I'LL 12345 6 78", "a\n\n b\r\n\tc   ",
    "\u00e9\u0301 na\u00efve \u65e5\u672c\u8a9e \U0001f642\U0001f3fd", "x=1+2; print($x) <tag>",
    "\u0663\u0664 \u00b2\u00b3 \u216b", "   leading", "trailing   ", "\u00a0\u2003nbsp",
    "don't can\u2019t",
]  # fmt: skip
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def learned_merges(rounds: int = 60) -> list[tuple[str, str]]:
    """A few real merges: the most frequent pairs of the texts, again and again."""
    table = naive.byte_characters()
    words = [
        [table[b] for b in word.encode()] for t in TEXTS * 2 for word in naive.split(naive.GPT2, t)
    ]
    merges: list[tuple[str, str]] = []
    for _ in range(rounds):
        counts: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in pairwise(word):
                counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=lambda p: (counts[p], p))
        merges.append(best)
        for word in words:
            i = 0
            while i < len(word) - 1:
                if (word[i], word[i + 1]) == best:
                    word[i : i + 2] = ["".join(best)]
                i += 1
    return merges


MERGES = learned_merges()
TOKENS = [*SPECIALS, *naive.byte_characters().values(), *("".join(m) for m in MERGES), "<user>"]
TYPES = [3, 3, 3, *([1] * (len(TOKENS) - 4)), 4]


def bpe_keys(**more: Any) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": TYPES,
        "tokenizer.ggml.merges": [" ".join(m) for m in MERGES],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    } | {f"tokenizer.ggml.{k}": v for k, v in more.items() if v is not None}


def load(folder: Path, keys: dict[str, Any]) -> GgufTokenizer:
    return load_tokenizer(GgufFile(write(folder / "t.gguf", keys=keys)))


PRES = {
    "gpt-2": ([naive.GPT2], False),
    "smollm": ([r"\p{N}", naive.GPT2], False),
    "llama-bpe": ([naive.LLAMA3], True),
    "qwen2": ([naive.QWEN2], False),
    "default": ([r"[\p{P}$+<=>^~|]+", naive.GPT2], False),
}


@pytest.mark.parametrize("pre", PRES)
def test_byte_level_ids(pre: str, tmp_path: Path) -> None:
    found = load(tmp_path, bpe_keys(pre=pre, add_bos_token=False))
    vocab = {t: i for i, t in enumerate(TOKENS)}
    ranks = {m: i for i, m in enumerate(MERGES)}
    patterns, whole = PRES[pre]

    @settings(max_examples=80)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
    @example("a1b22 333 4444")
    def check(text: str) -> None:
        if found.tokenizer.normalizer is not None:
            text = found.tokenizer.normalizer.normalize_str(text)
        ids = found.tokenizer.encode(text).ids
        assert ids == naive.byte_level(text, patterns, vocab, ranks, whole)
        assert found.tokenizer.decode(ids) == text

    check()
    for text in TEXTS[:-1]:
        ids = found.tokenizer.encode(text).ids
        assert ids == naive.byte_level(
            text if pre != "qwen2" else found.tokenizer.normalizer.normalize_str(text),
            patterns, vocab, ranks, whole,
        )  # fmt: skip


def test_special_tokens_are_whole_and_eos_is_a_union(tmp_path: Path) -> None:
    found = load(tmp_path, bpe_keys(pre="smollm", eot_token_id=1))
    assert found.tokenizer.encode("<|im_start|>1<user>2<|im_end|>").ids == [
        1, TOKENS.index("1"), len(TOKENS) - 1, TOKENS.index("2"), 2,
    ]  # fmt: skip
    assert found.eos_ids == (0, 1, 2)
    assert (found.bos_id, found.pad_id, found.unk_id, found.add_bos) == (1, None, None, False)
    text = found.tokenizer.decode([1, len(TOKENS) - 1, 2])
    assert text == "<user>"
    assert found.tokenizer.decode([1, 2], skip_special_tokens=False) == "<|im_start|><|im_end|>"


def test_bos_and_eos_are_added_as_the_file_says(tmp_path: Path) -> None:
    plain = load(tmp_path, bpe_keys(pre="llama-bpe", add_bos_token=False)).tokenizer
    ids = plain.encode("a").ids
    assert load(tmp_path, bpe_keys(pre="llama-bpe")).tokenizer.encode("a").ids == [1, *ids]
    both = load(tmp_path, bpe_keys(pre="gpt-2", add_bos_token=True, add_eos_token=True)).tokenizer
    assert both.encode("a").ids == [1, *ids, 2]
    assert both.encode("a", add_special_tokens=False).ids == ids
    assert both.encode("a", "a").ids == [1, *ids, 2, 1, *ids, 2]


def test_chat_templates(tmp_path: Path) -> None:
    keys = bpe_keys(pre="gpt-2") | {
        "tokenizer.chat_template": "{{ messages }}",
        "tokenizer.chat_template.tool_use": "{{ tools }}",
    }
    found = load(tmp_path, keys)
    assert found.chat_template == "{{ messages }}"
    assert found.chat_templates == {"tool_use": "{{ tools }}"}
    assert load(tmp_path, bpe_keys(pre="gpt-2")).chat_template is None


PIECES = [
    "<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *"abcdehlorw1,",
    "▁a", "ab", "▁ab", "he", "ll", "▁he", "▁hell", "lo", "llo", "wor", "or", "ld", "▁wor",
    "▁world", "hell", "  ", "   ", "\n", "\n\n", "a,",
]  # fmt: skip
PIECE_TYPES = [2, 3, 3, *([6] * 256), *([1] * (len(PIECES) - 264)), 4, 4, 4, 4, 1]
SCORES = [0.0] * 259 + [-float(i * 7 % 31) - i / 1000 for i in range(len(PIECES) - 259)]


def spm_keys(**more: Any) -> dict[str, Any]:
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.token_type": PIECE_TYPES,
        "tokenizer.ggml.scores": SCORES,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": False,
    } | {f"tokenizer.ggml.{k}": v for k, v in more.items()}


@pytest.mark.parametrize("prefix", [False, True])
def test_sentencepiece_ids(prefix: bool, tmp_path: Path) -> None:
    found = load(tmp_path, spm_keys(add_space_prefix=prefix))
    vocab = {p.replace(" ", "▁"): i for i, p in enumerate(PIECES)}
    user = ["\n", "\n\n"] if prefix else ["▁▁", "▁▁▁", "\n", "\n\n"]
    joinable = {p: i for p, i in vocab.items() if PIECE_TYPES[i] in (1, 6) or p in user}
    alphabet = "abcdehlorw1, zé🙂" if prefix else "abcdehlorw1, \n  zé🙂"

    @settings(max_examples=200)
    @given(st.text(st.sampled_from(alphabet), max_size=20))
    @example("hello world, aab")
    def check(text: str) -> None:
        if (prefix and "  " in text) or (prefix and text.startswith(" ")):
            return  # no model has both a prefix and runs of spaces
        ids = found.tokenizer.encode(text).ids
        assert ids == naive.sentencepiece(text, joinable, SCORES, user, prefix)
        assert found.tokenizer.decode(ids) == text

    check()


class TestRefusals:
    """What cannot be right is refused in one line."""

    @staticmethod
    def check(folder: Path, keys: dict[str, Any], match: str, error: type) -> None:
        with pytest.raises(error, match=match) as caught:
            load(folder, keys)
        assert "\n" not in str(caught.value)

    def test_unknown_names(self, tmp_path: Path) -> None:
        self.check(tmp_path, bpe_keys(pre="tekken"), "'tekken' is unknown", ArtifactUnsupported)
        self.check(tmp_path, bpe_keys(model="rwkv"), "'rwkv' is not", ArtifactUnsupported)
        self.check(tmp_path, {}, "None is not|no tokenizer", ArtifactCorrupt)

    def test_contradictions(self, tmp_path: Path) -> None:
        for keys, match in (
            (bpe_keys(token_type=[1, 2]), "2 token types"),
            (bpe_keys(merges=["ab"]), "not two tokens"),
            (bpe_keys(merges=["zq qz"]), "do not fit"),
            (bpe_keys(eos_token_id=10**6), "eos_token_id is 1000000"),
            (bpe_keys(tokens=[*TOKENS[:-1], TOKENS[5]]), "appears twice"),
            (spm_keys(scores=[1.0]), "one score"),
        ):
            self.check(tmp_path, keys, match, ArtifactCorrupt)
