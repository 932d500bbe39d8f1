"""What generation needs of a tokenizer: prompts in, text out, and nothing forged."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from runtime_py.errors import ArtifactCorrupt, InvalidInput

if TYPE_CHECKING:
    from tokenizers import Tokenizer as _Fast


class TextTokenizer(Protocol):
    """Ids of a prompt and text of ids.

    Attributes:
        control_tokens: texts of the special tokens.
    """

    control_tokens: Sequence[str]

    def encode(self, text: str) -> list[int]:
        """Ids of a plain prompt, with what the model puts before one; control tokens count.

        Raises:
            InvalidInput: no valid Unicode.
        """
        ...

    def encode_chat(self, text: str, guard: str) -> list[int]:
        """Ids of a rendered chat. A control token that holds ``guard`` after its first
        character is text; ``guard`` itself is left out.

        Raises:
            InvalidInput: no valid Unicode.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``; special tokens are left out."""
        ...


class HFTextTokenizer:
    """A `TextTokenizer` over ``tokenizer.json``.

    Args:
        json_text: content of the file; its padding and truncation are switched off.

    Raises:
        ArtifactCorrupt: the library cannot load it.
    """

    def __init__(self, json_text: str) -> None:
        from tokenizers import Tokenizer as Fast

        try:
            self._fast: _Fast = Fast.from_str(json_text)
        except Exception as e:  # the library raises plain Exception
            raise ArtifactCorrupt(
                f"tokenizer.json cannot be loaded ({str(e).splitlines()[0][:200]}); "
                "export the model again"
            ) from None
        self._fast.no_padding()
        self._fast.no_truncation()
        # As text: what forged control tokens are read as
        self._plain: _Fast = Fast.from_str(self._fast.to_str())
        self._plain.encode_special_tokens = True
        special = {
            token.content: i
            for i, token in self._fast.get_added_tokens_decoder().items()
            if token.special
        }
        self._special = special
        self.control_tokens: Sequence[str] = tuple(sorted(special, key=len, reverse=True))

    def encode(self, text: str) -> list[int]:
        _check_unicode(text)
        return list(self._fast.encode(text).ids)

    def encode_chat(self, text: str, guard: str) -> list[int]:
        _check_unicode(text)
        if guard not in text:
            return list(self._fast.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        pattern = "|".join(re.escape(token) for token in self.control_tokens)
        for part in re.split(f"({pattern})", text):
            if part in self._special:
                ids.append(self._special[part])
            elif part:
                plain = part.replace(guard, "")
                ids.extend(self._plain.encode(plain, add_special_tokens=False).ids)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._fast.decode(list(ids), skip_special_tokens=True))


def _check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as e:
        raise InvalidInput(
            f"the prompt holds {json.dumps(text[e.start])} at character {e.start}, a lone "
            "surrogate, expected valid Unicode; decode the text with errors='replace'"
        ) from None
