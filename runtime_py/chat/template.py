"""A model's chat template, rendered by Jinja in a sandbox, as transformers renders it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from runtime_py.errors import ArtifactCorrupt, InvalidInput


class ChatRenderer(Protocol):
    """Makes a prompt of a chat; see `ChatTemplate.render`."""

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str: ...


class ChatTemplate:
    """``chat_template.jinja``, compiled.

    The environment is that of transformers: blocks are trimmed, loop controls, `tojson`
    without HTML escapes, `raise_exception` and `strftime_now`; and nothing of Python can
    be reached or changed.

    Args:
        source: the template.
        bos_token, eos_token: texts that templates may name.

    Raises:
        ArtifactCorrupt: it is no Jinja template.
        InvalidInput: jinja2 is not installed.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "") -> None:
        try:
            import jinja2
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as e:
            raise InvalidInput(
                f"chat needs jinja2, which cannot be imported ({e}); install volery[chat]"
            ) from None
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        self._names = {"bos_token": bos_token, "eos_token": eos_token}
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as e:
            raise ArtifactCorrupt(
                f"chat_template.jinja cannot be compiled ({_line(e)}); export the model again"
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt's text.

        Args:
            add_generation_prompt: end with the start of the assistant's turn.
            tools: for templates that describe tools.
            variables: more names for the template.

        Raises:
            InvalidInput: the template refuses the messages, or fails on them.
        """
        names = {
            **self._names,
            **(variables or {}),
            "messages": messages,
            "add_generation_prompt": add_generation_prompt,
            "tools": tools,
        }
        try:
            return self._template.render(names)
        except Exception as e:  # a template is a program of somebody else's
            raise InvalidInput(
                f"the chat template refuses these messages ({_line(e)}); "
                "check their roles and their order"
            ) from None


def _raise(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:200] if text else type(error).__name__
