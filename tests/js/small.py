"""Small artifacts with tokenizers: what the JavaScript engine and the Python one both load."""

from __future__ import annotations

import string
from pathlib import Path

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.artifact.small import (
    VOCAB,
    read_manifest,
    reseal,
    small_model,
    write_manifest,
    write_small,
)
from tests.generation.test_loading import write as write_decoder

CHARACTERS = string.ascii_lowercase + string.digits + ".,!?:"


def tokenizer_json() -> str:
    """A word piece for every character, which begins a word or continues it."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *CHARACTERS, *[f"##{c}" for c in CHARACTERS]]
    vocab = {word: i for i, word in enumerate(words)}
    assert len(vocab) <= VOCAB
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(words[:4])
    ends = [("[SEP]", 3), ("[CLS]", 2)]
    tokenizer.post_processor = processors.BertProcessing(*ends)
    return str(tokenizer.to_str())


def write_embedder(folder: Path, **embedding: object) -> Path:
    """A quantized encoder of 64 positions with two prompts."""
    write_small(folder, small_model())
    (folder / "tokenizer.json").write_text(tokenizer_json())
    manifest = read_manifest(folder)
    manifest["embedding"].update(embedding)
    write_manifest(folder, manifest)
    reseal(folder)
    return folder


__all__ = ["write_decoder", "write_embedder"]
