"""Text to token ids, exactly as the model's own tokenizer makes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from runtime_py.errors import ArtifactCorrupt, InvalidInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer as _Fast


class Encoded(NamedTuple):
    """The tokens of one text.

    Attributes:
        ids: at most ``max_tokens`` ids, special tokens included.
        num_tokens: tokens before truncation, special tokens included.
    """

    ids: list[int]
    num_tokens: int


class Tokenizer(Protocol):
    """What the model needs of a tokenizer. Calls may come from any thread.

    Attributes:
        max_tokens: where `encode` truncates.
    """

    max_tokens: int

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Tokenize each text, special tokens added, truncated at the end to ``max_tokens``.

        Raises:
            InvalidInput: a text that has no UTF-8 form (a lone surrogate); it names the index.
        """
        ...

    def prompt_length(self, prompt: str) -> int:
        """Leading tokens that ``prompt`` takes when text follows it."""
        ...


class HFTokenizer:
    """A `Tokenizer` over ``tokenizer.json``, the only source of truth.

    Truncation is the library's own (longest first, from the right, special tokens kept),
    which is what sentence-transformers and ``AutoTokenizer(truncation=True)`` use; padding
    and truncation settings inside the file are replaced.

    Args:
        json_text: content of ``tokenizer.json``.
        max_tokens: longest output, special tokens included.

    Raises:
        ArtifactCorrupt: the file is not a tokenizer this library can load, or its special
            tokens alone exceed ``max_tokens``.
    """

    def __init__(self, json_text: str, max_tokens: int) -> None:
        from tokenizers import Tokenizer as Fast

        try:
            self._fast: _Fast = Fast.from_str(json_text)
        except Exception as e:  # the library raises plain Exception
            raise ArtifactCorrupt(
                f"tokenizer.json cannot be loaded ({_first_line(e)}); export the model again"
            ) from None
        self._added = self._fast.num_special_tokens_to_add(is_pair=False)
        if self._added >= max_tokens:
            raise ArtifactCorrupt(
                f"tokenizer.json adds {self._added} special tokens, the model's limit is "
                f"{max_tokens} tokens; nothing would be left for text"
            )
        self._fast.no_padding()
        self._fast.enable_truncation(max_tokens)
        self._special = frozenset(
            token_id
            for token_id, token in self._fast.get_added_tokens_decoder().items()
            if token.special
        )
        self.max_tokens = max_tokens

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        try:
            encodings = self._fast.encode_batch_fast(texts)
        except (TypeError, UnicodeError):
            raise _unencodable(texts) from None
        out = []
        for e in encodings:
            ids = e.ids
            num_tokens = len(ids)
            if num_tokens == self.max_tokens:
                num_tokens += sum([len(rest.ids) - self._added for rest in e.overflowing])
            out.append(Encoded(ids, num_tokens))
        return out

    def prompt_length(self, prompt: str) -> int:
        """Like sentence-transformers: the prompt's own tokens without a closing special one."""
        ids = self.encode([prompt])[0].ids
        return len(ids) - (1 if ids and ids[-1] in self._special else 0)


def _unencodable(texts: Sequence[str]) -> InvalidInput:
    for i, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as e:
            return InvalidInput(
                f"texts[{i}] holds {json.dumps(text[e.start])} at character {e.start}, a lone "
                "surrogate, expected valid Unicode; decode the text with errors='replace'",
            )
    return InvalidInput("the tokenizer refuses the texts, expected valid Unicode")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
