"""The line that a person types, with editing, history and completion of /commands."""

from __future__ import annotations

from collections.abc import Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.shortcuts import CompleteStyle

_NEW_LINE = KeyBindings()


@_NEW_LINE.add(Keys.Escape, Keys.Enter)
def _insert_new_line(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("\n")


class LineEditor:
    """Reads messages from a terminal.

    Keys are read in raw mode, where Ctrl-C is a key like any other. `input` waits for a
    signal instead, and one that comes between the prompt and the wait is not noticed
    before the next key. What is pasted comes as one message, whatever lines it has.

    Args:
        commands: what Tab completes at the start of a message.
    """

    def __init__(self, commands: Iterable[str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            completer=_Commands(commands),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            key_bindings=_NEW_LINE,
        )

    def read(self, prompt: str) -> str:
        """One message.

        Raises:
            KeyboardInterrupt: Ctrl-C.
            EOFError: Ctrl-D on an empty line.
        """
        return self._session.prompt(prompt)


class _Commands(Completer):
    def __init__(self, names: Iterable[str]) -> None:
        self._names = sorted(names)

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if typed.startswith("/"):
            for name in self._names:
                if name.startswith(typed):
                    yield Completion(name, start_position=-len(typed))
