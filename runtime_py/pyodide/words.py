"""Tokenizers and the chat template of a page: the JavaScript ones, behind Python's protocols."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from runtime_py.pyodide.errors import raised_in_page
from runtime_py.tokenization import Encoded


class PageTokenizer:
    """A `Tokenizer`; ``words`` is the JavaScript object (`workers/src/python/words.js`)."""

    def __init__(self, words: Any, max_tokens: int) -> None:
        self._words = words
        self.max_tokens = max_tokens

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        with raised_in_page():
            flat = _integers(self._words.encodeTexts(json.dumps(list(texts))))
        at, out = 2 * len(texts), []
        for i in range(len(texts)):
            count, num_tokens = flat[2 * i], flat[2 * i + 1]
            out.append(Encoded(flat[at : at + count].tolist(), num_tokens))
            at += count
        return out

    def prompt_length(self, prompt: str) -> int:
        with raised_in_page():
            return int(self._words.promptLength(prompt))


class PageTextTokenizer:
    """A `TextTokenizer`; ``words`` as for `PageTokenizer`."""

    def __init__(self, words: Any) -> None:
        self._words = words
        self.control_tokens: Sequence[str] = tuple(json.loads(words.controlTokens()))

    def encode(self, text: str) -> list[int]:
        with raised_in_page():
            return _integers(self._words.encode(json.dumps(text))).tolist()

    def encode_chat(self, text: str, guard: str) -> list[int]:
        with raised_in_page():
            return _integers(self._words.encodeChat(json.dumps(text), guard)).tolist()

    def decode(self, ids: Sequence[int]) -> str:
        from pyodide.ffi import to_js

        with raised_in_page():
            return str(self._words.decode(to_js(array("i", ids))))


class PageTemplate:
    """A `ChatRenderer` over the JavaScript template engine."""

    def __init__(self, words: Any) -> None:
        with raised_in_page():
            words.compileTemplate()
        self._words = words

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        options = {
            "addGenerationPrompt": add_generation_prompt,
            "tools": list(tools) if tools is not None else None,
            "variables": dict(variables or {}),
        }
        with raised_in_page():
            plain = json.dumps([dict(message) for message in messages])
            return str(self._words.render(plain, json.dumps(options)))


def _integers(js: Any) -> array[int]:
    found = array("i")
    found.frombytes(js.to_bytes())
    return found
