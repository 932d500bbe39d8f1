"""The tokenizer inside a GGUF file, as a ``tokenizers.Tokenizer``.

Two kinds exist for language models: ``gpt2``, a byte-level BPE whose pre-tokenizer the
file only names, and ``llama``, a SentencePiece model of pieces and scores. Names are
those that the converters to GGUF write; one that is not listed is refused, because a
wrong split gives ids that look right and are not.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from toolchain.sources.gguf.reader import GgufFile
from toolchain.sources.gguf.sentencepiece import merges_from_scores

END_OF_TURN = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>",
    "<|end_of_text|>", "<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>", "<EOT>",
)  # fmt: skip
"""Texts of control tokens that end a turn in the families we know."""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_LETTERS}|\p{{N}}|{_REST}"

_PLAIN = ("gpt-2", "phi-2", "olmo", "jina-es", "jina-de", "roberta-bpe")
_DIGITS = ("smollm", "starcoder", "refact", "command-r")
_GROUPS_OF_THREE = ("llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe")
_SINGLE_DIGITS = ("qwen2", "deepseek-r1-qwen", "stablelm2")


class TokenType(IntEnum):
    """``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """A tokenizer and what a chat needs besides.

    Attributes:
        tokenizer: adds the bos and eos that the file asks for.
        tokens: text of every id.
        bos_id, unk_id, pad_id: ids, where the file names them.
        eos_ids: everything that ends a generation, ascending.
        add_bos, add_eos: what ``tokenizer`` adds.
        chat_template: Jinja text, None if the file has none.
        chat_templates: further templates by name.
    """

    tokenizer: Tokenizer
    tokens: list[str]
    bos_id: int | None
    unk_id: int | None
    pad_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool
    add_eos: bool
    chat_template: str | None
    chat_templates: dict[str, str]


def load_tokenizer(gguf: GgufFile) -> GgufTokenizer:
    """Build the tokenizer of ``gguf``.

    Raises:
        ArtifactUnsupported: a tokenizer model or pre-tokenizer that is not listed.
        ArtifactCorrupt: a vocabulary that contradicts itself.
    """
    model = gguf.value("tokenizer.ggml.model", str)
    tokens, types = _vocabulary(gguf)
    if model == "gpt2":
        pre = gguf.value("tokenizer.ggml.pre", str, "default")
        tokenizer = _byte_level(gguf, tokens, types, pre)
        add_bos = pre in _GROUPS_OF_THREE
    elif model == "llama":
        tokenizer = _sentencepiece(gguf, tokens, types)
        add_bos = True
    else:
        raise ArtifactUnsupported(
            f"{gguf.path}: tokenizer model {model!r} is not supported, expected 'gpt2' or "
            "'llama'; choose another model"
        )
    _add_special(tokenizer, tokens, types, spaced=model == "llama")
    bos, eos = _token_id(gguf, "bos", tokens), _token_id(gguf, "eos", tokens)
    add_bos = gguf.value("tokenizer.ggml.add_bos_token", bool, add_bos) and bos is not None
    add_eos = gguf.value("tokenizer.ggml.add_eos_token", bool, False) and eos is not None
    _add_template(tokenizer, tokens, bos if add_bos else None, eos if add_eos else None)
    if tokenizer.get_vocab_size() != len(tokens):
        raise _corrupt(
            gguf,
            f"a vocabulary of {len(tokens)} tokens became {tokenizer.get_vocab_size()}",
        )
    return GgufTokenizer(
        tokenizer=tokenizer,
        tokens=tokens,
        bos_id=bos,
        unk_id=_token_id(gguf, "unknown", tokens),
        pad_id=_token_id(gguf, "padding", tokens),
        eos_ids=_eos_ids(gguf, tokens, types),
        add_bos=add_bos,
        add_eos=add_eos,
        chat_template=gguf.value("tokenizer.chat_template", str),
        chat_templates={
            key.removeprefix("tokenizer.chat_template."): value
            for key, value in gguf.metadata.items()
            if key.startswith("tokenizer.chat_template.") and isinstance(value, str)
        },
    )


def _corrupt(gguf: GgufFile, what: str) -> ArtifactCorrupt:
    return ArtifactCorrupt(f"{gguf.path}: {what}; convert the model again")


def _vocabulary(gguf: GgufFile) -> tuple[list[str], list[int]]:
    tokens = gguf.value("tokenizer.ggml.tokens", list)
    if not tokens:
        raise _corrupt(gguf, "it has no tokenizer.ggml.tokens")
    found = gguf.metadata.get("tokenizer.ggml.token_type")
    types = [1] * len(tokens) if found is None else np.atleast_1d(found).tolist()
    if len(types) != len(tokens):
        raise _corrupt(gguf, f"it has {len(tokens)} tokens and {len(types)} token types")
    if len(set(tokens)) != len(tokens):
        seen: dict[str, int] = {}
        twice = next(t for i, t in enumerate(tokens) if seen.setdefault(t, i) != i)
        raise _corrupt(gguf, f"the token {twice!r} appears twice")
    return tokens, types


def _byte_level(gguf: GgufFile, tokens: list[str], types: list[int], pre: str) -> Tokenizer:
    merges = []
    for line in gguf.value("tokenizer.ggml.merges", list, []):
        left, space, right = line.partition(" ")
        if not (left and space and right):
            raise _corrupt(gguf, f"the merge {line[:40]!r} is not two tokens")
        merges.append((left, right))
    vocab = {token: i for i, token in enumerate(tokens)}
    try:
        model = BPE(vocab=vocab, merges=merges, ignore_merges=pre in _GROUPS_OF_THREE)
    except Exception as error:  # the library raises plain Exception
        raise _corrupt(gguf, f"its merges do not fit its tokens ({error})") from None
    tokenizer = Tokenizer(model)
    split = _pre_tokenizer(gguf, pre)
    if pre in ("qwen2", "deepseek-r1-qwen"):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = split
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(gguf: GgufFile, pre: str) -> pre_tokenizers.PreTokenizer:
    if pre in _PLAIN:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pre in _DIGITS:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    if pre in _GROUPS_OF_THREE or pre in _SINGLE_DIGITS:
        pattern = _LLAMA3 if pre in _GROUPS_OF_THREE else _QWEN2
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    if pre == "default":
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"[\p{P}$+<=>^~|]+"), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    known = ", ".join(("default", *_PLAIN, *_DIGITS, *_GROUPS_OF_THREE, *_SINGLE_DIGITS))
    raise ArtifactUnsupported(
        f"{gguf.path}: pre-tokenizer {pre!r} is unknown, expected one of {known}; "
        "export from the original model directory instead"
    )


def _sentencepiece(gguf: GgufFile, tokens: list[str], types: list[int]) -> Tokenizer:
    scores = gguf.metadata.get("tokenizer.ggml.scores")
    if scores is None or np.shape(scores) != (len(tokens),):
        raise _corrupt(gguf, f"it has {len(tokens)} tokens but not one score for each")
    # Converters write user-defined runs of spaces as spaces; inside the model a space is ▁
    vocab = {token.replace(" ", "▁"): i for i, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise _corrupt(gguf, "two tokens differ only in how they write a space")
    mergeable = {
        piece: i for piece, i in vocab.items() if types[i] in (TokenType.NORMAL, TokenType.UNUSED)
    }
    unk = _token_id(gguf, "unknown", tokens)
    model = BPE(
        vocab=vocab,
        merges=merges_from_scores(mergeable, np.asarray(scores, np.float64)),
        unk_token=None if unk is None else tokens[unk],
        fuse_unk=True,
        byte_fallback=TokenType.BYTE in types,
    )
    tokenizer = Tokenizer(model)
    prefix = gguf.value("tokenizer.ggml.add_space_prefix", bool, True)
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = (
        normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prefix else replace
    )
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _add_special(tokenizer: Tokenizer, tokens: list[str], types: list[int], spaced: bool) -> None:
    """Make tokens that must never be split whole; ids stay, their texts are in the model."""
    added = []
    for token, kind in zip(tokens, types, strict=True):
        if kind in (TokenType.CONTROL, TokenType.UNKNOWN):
            added.append(AddedToken(token, special=True, normalized=False))
        elif kind == TokenType.USER_DEFINED:
            # a run of spaces is matched where it has become a run of ▁
            inner = token.replace(" ", "▁") if spaced else token
            added.append(AddedToken(inner, special=False, normalized="▁" in inner))
    tokenizer.add_tokens(added)


def _add_template(
    tokenizer: Tokenizer, tokens: list[str], bos: int | None, eos: int | None
) -> None:
    if bos is None and eos is None:
        return
    before = [] if bos is None else [tokens[bos]]
    after = [] if eos is None else [tokens[eos]]
    special = {tokens[i]: i for i in (bos, eos) if i is not None}
    tokenizer.post_processor = TemplateProcessing(
        single=[*before, "$A:0", *after],
        pair=[*before, "$A:0", *after, *(f"{t}:1" for t in before), "$B:1"]
        + [f"{t}:1" for t in after],
        special_tokens=list(special.items()),
    )


def _token_id(gguf: GgufFile, name: str, tokens: list[str]) -> int | None:
    found = gguf.value(f"tokenizer.ggml.{name}_token_id", int)
    if found is None or found == 0xFFFFFFFF:
        return None
    if not 0 <= found < len(tokens):
        raise _corrupt(gguf, f"{name}_token_id is {found} of {len(tokens)} tokens")
    return int(found)


def _eos_ids(gguf: GgufFile, tokens: list[str], types: list[int]) -> tuple[int, ...]:
    named = [_token_id(gguf, name, tokens) for name in ("eos", "eot", "eom")]
    special = (TokenType.CONTROL, TokenType.USER_DEFINED)
    by_text = [
        i
        for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in special and token in END_OF_TURN
    ]
    return tuple(sorted({i for i in named if i is not None} | set(by_text)))
