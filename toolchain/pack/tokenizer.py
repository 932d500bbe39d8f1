"""``tokenizer.json`` for the artifact: what ``AutoTokenizer`` does, in as few bytes as possible."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

from tokenizers import Tokenizer

from runtime_py.errors import ArtifactCorrupt
from toolchain.sources import ModelSource
from toolchain.sources.tokenizers import fast_tokenizer

_FUZZ_TEXTS = 200


def tokenizer_json(source: ModelSource, *, lower_case: bool, samples: Sequence[str]) -> bytes:
    """The model's tokenizer, proved to give the ids of the original.

    Truncation and padding are left out: the runtime sets its own.

    Args:
        lower_case: sentence-transformers lower-cases texts first; so will the tokenizer.
        samples: texts on which both must agree, besides random ones.

    Raises:
        ArtifactMissing, ArtifactUnsupported: the model has no fast tokenizer.
        ArtifactCorrupt: the written file encodes a text differently.
    """
    original = fast_tokenizer(source)
    original.no_truncation()
    original.no_padding()
    config: dict[str, Any] = json.loads(original.to_str())
    config["truncation"] = config["padding"] = None
    if lower_case:
        config["normalizer"] = _lower_cased(config.get("normalizer"))
    data = json.dumps(config, ensure_ascii=False, separators=(",", ":")).encode()
    written = Tokenizer.from_str(data.decode())
    # Lower-casing before tokenization, as sentence-transformers does it, also changes special
    # tokens that somebody typed; a normalizer leaves them whole. That difference is wanted.
    special = [token.content for token in original.get_added_tokens_decoder().values()]
    for text in (*samples, *_fuzz()):
        if lower_case and any(token in text for token in special):
            continue
        expected = original.encode(text.lower() if lower_case else text).ids
        found = written.encode(text).ids
        if found != expected:
            raise ArtifactCorrupt(
                f"the written tokenizer encodes {text[:40]!r} as {found[:8]}, the model's as "
                f"{expected[:8]}; report this model's tokenizer"
            )
    return data


def _lower_cased(normalizer: dict[str, Any] | None) -> dict[str, Any]:
    lower = {"type": "Lowercase"}
    if normalizer is None:
        return lower
    return {"type": "Sequence", "normalizers": [lower, normalizer]}


def _fuzz() -> Iterator[str]:
    """Random texts over several scripts, spaces, marks and symbols; always the same."""
    rng = random.Random(0)
    ranges = (
        (0x20, 0x7E),
        (0x20, 0x7E),
        (0xA0, 0x24F),
        (0x300, 0x36F),
        (0x400, 0x4FF),
        (0x5D0, 0x5EA),
        (0x620, 0x64A),
        (0x900, 0x97F),
        (0x3040, 0x30FF),
        (0x4E00, 0x4FFF),
        (0xAC00, 0xAD00),
        (0x1F300, 0x1F64F),
    )
    yield from ("", " ", "\t\n", "\u200b", "[CLS] <s> [MASK] </s> <pad>")
    for _ in range(_FUZZ_TEXTS):
        chosen = rng.choices(ranges, k=rng.randint(1, 60))
        yield "".join(
            " " if rng.random() < 0.15 else chr(rng.randint(low, high)) for low, high in chosen
        )
