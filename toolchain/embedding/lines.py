"""Decoded lines of a byte stream, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from runtime_py.errors import InvalidInput

MAX_LINE_BYTES = 64 << 20
_READ_BYTES = 1 << 20
_BOM_8 = b"\xef\xbb\xbf"
_BOMS_16 = (b"\xff\xfe", b"\xfe\xff")


class RawSource(Protocol):
    """An unbuffered binary file.

    Not a `io.BufferedReader`: a thread that waits inside one holds its lock, and closing
    it, which also happens when Python ends, would wait for that thread.
    """

    def read(self, size: int, /) -> bytes | None: ...


class Lines:
    """Lines with their ends, and where reading stands.

    Attributes:
        name: what errors call the source.
        number: of the last line, from 1.
        bytes_read: up to the end of that line.
    """

    def __init__(self, source: RawSource, name: str) -> None:
        self._source, self.name = source, name
        self._buffer = b""
        self._at = 0
        self.number = 0
        self.bytes_read = 0

    def fail(self, what: str, line: int | None = None) -> InvalidInput:
        """The error for ``line``, by default the last one."""
        return InvalidInput(f"{self.name}, line {line or self.number}: {what}")

    def __iter__(self) -> Iterator[str]:
        while raw := self._readline(MAX_LINE_BYTES + 1):
            self.number += 1
            self.bytes_read += len(raw)
            if len(raw) > MAX_LINE_BYTES:
                raise self.fail(f"the line has more than {MAX_LINE_BYTES} bytes; split the text")
            if self.number == 1:
                raw = raw.removeprefix(_BOM_8)
                if raw.startswith(_BOMS_16):
                    raise self.fail("the file is UTF-16, expected UTF-8; convert it first")
            try:
                yield raw.decode()
            except UnicodeDecodeError as e:
                raise self.fail(
                    f"byte {raw[e.start]:#04x} at offset {e.start} of the line is not UTF-8; "
                    "convert the file to UTF-8"
                ) from None

    def _readline(self, limit: int) -> bytes:
        """Up to and with the next ``\\n``, the end of the source, or ``limit`` bytes."""
        parts: list[bytes] = []
        while True:
            newline = self._buffer.find(b"\n", self._at)
            stop = newline + 1 if newline >= 0 else len(self._buffer)
            part = self._buffer[self._at : min(stop, self._at + limit)]
            parts.append(part)
            self._at += len(part)
            limit -= len(part)
            if limit == 0 or part.endswith(b"\n"):
                return b"".join(parts)
            self._buffer, self._at = self._source.read(_READ_BYTES) or b"", 0
            if not self._buffer:
                return b"".join(parts)
