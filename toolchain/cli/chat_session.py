"""A conversation and the options of its answers: everything but the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runtime_py import ModelInfo
from runtime_py.chat import check_messages
from runtime_py.errors import ArtifactCorrupt, InvalidInput
from runtime_py.generation.options import generate_options
from toolchain.cli.generation_options import DEFAULTS, unescaped

FORMAT, VERSION = "volery-chat", 1
_MAX_FILE_BYTES = 64 << 20


class ChatSession:
    """The messages so far.

    Args:
        info: of the model; options are checked against it.
        options: keyword arguments of `Model.chat`.
        system: text of the system message.

    Attributes:
        messages: dicts with ``role`` and ``content``; the system message first, if any.

    Raises:
        InvalidInput: an option is outside its range.
    """

    def __init__(
        self, info: ModelInfo, options: Mapping[str, Any], *, system: str | None = None
    ) -> None:
        self._info = info
        self._first = dict(options)
        self.options = dict(options)
        self.messages: list[dict[str, Any]] = []
        self._check(self.options)
        if system is not None:
            self.system = system

    # --- turns

    @property
    def turns(self) -> int:
        """Messages of the user."""
        return sum(m["role"] == "user" for m in self.messages)

    def ask(self, text: str) -> None:
        """The user says something."""
        self.messages.append({"role": "user", "content": text})

    def answered(self, text: str) -> None:
        """The assistant's answer, whole or as far as it came."""
        self.messages.append({"role": "assistant", "content": text})

    def undo(self) -> str:
        """Take the last message of the user back, with what followed; that message.

        Raises:
            InvalidInput: there is none.
        """
        if not self.turns:
            raise InvalidInput("nothing has been said yet, so there is nothing to take back")
        while self.messages[-1]["role"] != "user":
            self.messages.pop()
        return str(self.messages.pop()["content"])

    def forget_oldest(self) -> bool:
        """Drop the oldest exchange to make room for new ones; whether there was one to drop.

        The system message and the last message of the user stay.
        """
        if self.turns < 2:
            return False
        start = 1 if self.messages[0]["role"] == "system" else 0
        end = start + 1
        while self.messages[end]["role"] != "user":
            end += 1
        del self.messages[start:end]
        return True

    def reset(self) -> None:
        """Begin anew; the system message and the options stay."""
        self.messages = [m for m in self.messages if m["role"] == "system"]

    @property
    def system(self) -> str | None:
        """Text of the system message."""
        first = self.messages[0] if self.messages else None
        return str(first["content"]) if first and first["role"] == "system" else None

    @system.setter
    def system(self, text: str) -> None:
        self.messages = [m for m in self.messages if m["role"] != "system"]
        if text:
            self.messages.insert(0, {"role": "system", "content": text})

    # --- options

    def set(self, name: str, value: str) -> None:
        """Change an option of the next answers; ``default`` is what the command began with.

        Raises:
            InvalidInput: no such option, or a value outside its range.
        """
        if name not in _PARSERS:
            raise InvalidInput(
                f"there is no option {name!r}, expected one of {', '.join(_PARSERS)}"
            )
        options = {k: v for k, v in self.options.items() if k != name}
        if value != "default":
            try:
                options[name] = _PARSERS[name](value)
            except ValueError:
                kind = "a whole number" if _PARSERS[name] is int else "a number"
                raise InvalidInput(f"{name} is {value!r}, expected {kind}") from None
        elif name in self._first:
            options[name] = self._first[name]
        self._check(options)
        self.options = options

    def settings(self) -> dict[str, Any]:
        """Every option with its value now."""
        return {**DEFAULTS, **self.options}

    def _check(self, options: Mapping[str, Any]) -> None:
        generate_options(
            vocab_size=self._info.vocab_size,
            max_context=self._info.max_context,
            **options,
        )

    # --- files

    def save(self, path: Path) -> None:
        """Write messages and options as JSON.

        Raises:
            InvalidInput: the file cannot be written.
        """
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "model": self._info.id,
            "messages": self.messages,
            "options": self.options,
        }
        try:
            path.write_text(json.dumps(plain, ensure_ascii=False, indent=1) + "\n", "utf-8")
        except OSError as e:
            raise InvalidInput(f"{path} cannot be written ({e.strerror})") from None

    def load(self, path: Path) -> None:
        """Continue what `save` wrote. On an error nothing changes.

        Raises:
            InvalidInput: the file cannot be read, or holds a bad message or option.
            ArtifactCorrupt: it is not a saved chat.
        """
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                raise InvalidInput(f"{path} is larger than a saved chat can be")
            plain = json.loads(path.read_text("utf-8"))
        except OSError as e:
            raise InvalidInput(f"{path} cannot be read ({e.strerror})") from None
        except (ValueError, RecursionError) as e:
            raise ArtifactCorrupt(f"{path} is not a saved chat ({e})") from None
        if not isinstance(plain, dict) or plain.get("format") != FORMAT:
            raise ArtifactCorrupt(f"{path} is not a saved chat, expected what /save wrote")
        if plain.get("version") != VERSION:
            raise ArtifactCorrupt(
                f"{path} is a chat of version {plain.get('version')!r}, expected {VERSION}"
            )
        messages, options = plain.get("messages"), plain.get("options")
        if not isinstance(options, dict) or set(options) - set(DEFAULTS):
            raise ArtifactCorrupt(f"{path} has options that a chat does not have")
        self._check(options)
        self.messages = check_messages(messages) if messages else []
        self.options = options


def _stop(value: str) -> list[str] | None:
    return [unescaped(value)] if value else None


_PARSERS: dict[str, Callable[[str], Any]] = {
    "max_tokens": int,
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "seed": int,
    "stop": _stop,
}
