"""Text that a model wrote, on a terminal or in a pipe."""

from __future__ import annotations

import sys
from typing import TextIO

_ESCAPES = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"
}


def visible(text: str) -> str:
    """``text`` without the power to move the cursor: control characters as escapes."""
    return text.translate(_ESCAPES)


class Writer:
    """Writes a model's text as it comes.

    On a terminal its control characters are shown, not obeyed; in a pipe the text is
    passed on as it is. What the stream's encoding lacks becomes an escape.

    Args:
        stream: standard output.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.interactive = self._stream.isatty()
        self._column = 0
        if hasattr(self._stream, "reconfigure"):
            self._stream.reconfigure(errors="backslashreplace")

    def write(self, text: str) -> None:
        """Write and show ``text`` now."""
        if text:
            self._stream.write(visible(text) if self.interactive else text)
            self._stream.flush()
            self._column = len(text) - text.rfind("\n") - 1 if "\n" in text else 1

    def line(self, text: str = "") -> None:
        """Write ``text`` and the end of the line."""
        self.write(text)
        self.write("\n")

    def end_line(self) -> None:
        """End the line if it is begun."""
        if self._column:
            self.write("\n")
