"""Checking messages, and disarming the control tokens in what people wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from runtime_py.errors import InvalidInput, InvalidType

ROLES = ("system", "developer", "user", "assistant", "tool")
_MAX_DEPTH = 64
_GUARDS = range(0xE000, 0xF8FF)  # private use: in no vocabulary as a token of meaning


def check_messages(messages: object) -> list[dict[str, Any]]:
    """Copies of ``messages``, each with a known role and a content.

    Content is a str, or a list of ``{"type": "text", "text": str}``, which is joined.
    Other fields are for the template.

    Raises:
        InvalidType, InvalidInput: names the message.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise InvalidType(
            f"messages is {type(messages).__name__}, expected a list of "
            '{"role": ..., "content": ...}'
        )
    if not messages:
        raise InvalidInput("messages is empty, expected at least one message")
    return [_check(i, message) for i, message in enumerate(messages)]


def check_template_options(tools: object, template_options: object) -> None:
    """Check what a template is given besides the messages.

    Raises:
        InvalidType: ``tools`` is no list, or ``template_options`` no dict.
    """
    is_list = isinstance(tools, Sequence) and not isinstance(tools, str | bytes)
    if tools is not None and not is_list:
        raise InvalidType(f"tools is {type(tools).__name__}, expected a list")
    if template_options is not None and not isinstance(template_options, Mapping):
        raise InvalidType(f"template_options is {type(template_options).__name__}, expected a dict")


def _check(index: int, message: object) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidType(f"messages[{index}] is {type(message).__name__}, expected a dict")
    role = message.get("role")
    if role not in ROLES:
        raise InvalidInput(f"messages[{index}] has role {role!r}, expected one of {list(ROLES)}")
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        for part in content:
            if (
                not isinstance(part, Mapping)
                or part.get("type") != "text"
                or not isinstance(part.get("text"), str)
            ):
                raise InvalidInput(
                    f"messages[{index}] has a content part {part!r}, expected "
                    '{"type": "text", "text": str}'
                )
        content = "".join([part["text"] for part in content])
    if not isinstance(content, str):
        raise InvalidType(
            f"messages[{index}] has content of type {type(content).__name__}, expected str"
        )
    return {**message, "role": role, "content": content}


def guarded(
    messages: list[dict[str, Any]], control_tokens: Sequence[str]
) -> tuple[list[dict[str, Any]], str]:
    """The messages with a guard character inside every control token that a string of
    theirs holds, and that character, which none of them holds otherwise.

    A template can trim, join and compare such strings as it likes; where the text is
    tokenized the guard tells the template's own control tokens from forged ones.
    """
    strings: list[str] = []
    _each_string(messages, strings.append)
    everything = "".join(strings)
    guard = next(chr(c) for c in _GUARDS if chr(c) not in everything)

    def disarm(text: str) -> str:
        for token in control_tokens:  # longest first
            if token in text:
                text = text.replace(token, token[:1] + guard + token[1:])
        return text

    return [{k: _mapped(v, disarm) for k, v in m.items()} for m in messages], guard


def _each_string(value: Any, see: Any, depth: int = 0) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidInput(
            f"messages are nested deeper than {_MAX_DEPTH} levels, expected plain data"
        )
    if isinstance(value, str):
        see(value)
    elif isinstance(value, Mapping):
        for k, v in value.items():
            see(str(k))
            _each_string(v, see, depth + 1)
    elif isinstance(value, list | tuple):
        for v in value:
            _each_string(v, see, depth + 1)


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(k)): _mapped(v, change) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(v, change) for v in value]
    return value
