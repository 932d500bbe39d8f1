"""Records from lines, JSONL, CSV and TSV, one at a time: memory does not grow with the file.

A *line* ends at ``\\n`` (a ``\\r`` before it is dropped); the other characters that Unicode
calls line ends stay inside the text. In the ``lines`` format every line is a text, empty ones
too, so row i of the output is line i of the input.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from runtime_py.errors import InvalidInput
from toolchain.embedding.lines import MAX_LINE_BYTES, Lines, RawSource
from toolchain.embedding.settings import InputFormat


class Record(NamedTuple):
    """One text of the input.

    Attributes:
        row: its number, from 0.
        line: the line it starts on, from 1.
        id: what identifies it in the output.
        text: the text.
        end: bytes of the input read up to its end (for progress).
    """

    row: int
    line: int
    id: str | int
    text: str
    end: int


@contextmanager
def open_records(
    path: Path, fmt: InputFormat, field: str | None, id_field: str | None
) -> Iterator[Iterator[Record]]:
    """The records of a file.

    Raises:
        InvalidInput: the file cannot be opened; while iterating, a line that breaks the
            format or is not UTF-8, by its number.
    """
    try:
        source = path.open("rb", buffering=0)
    except OSError as e:
        raise InvalidInput(f"cannot read {path}: {e.strerror}; expected a file of texts") from None
    with source:
        yield records(source, path.name, fmt, field, id_field)


def stdin_records(fmt: InputFormat, field: str | None, id_field: str | None) -> Iterator[Record]:
    source = open(0, "rb", buffering=0, closefd=False)  # noqa: SIM115  (file 0 is not ours to close)
    return records(source, "standard input", fmt, field, id_field)


def records(
    source: RawSource, name: str, fmt: InputFormat, field: str | None, id_field: str | None
) -> Iterator[Record]:
    """Parse ``source``; ``name`` is what errors call it."""
    lines = Lines(source, name)
    match fmt:
        case InputFormat.LINES:
            if field or id_field:
                raise InvalidInput(
                    f"{name} is read as plain lines, which have no fields to choose; "
                    "name its format with --format jsonl or --format csv"
                )
            return _plain(lines)
        case InputFormat.JSONL:
            return _jsonl(lines, field, id_field)
        case InputFormat.CSV:
            return _csv(lines, field, id_field, ",")
        case InputFormat.TSV:
            return _csv(lines, field, id_field, "\t")


def _plain(lines: Lines) -> Iterator[Record]:
    for row, line in enumerate(lines):
        text = line.removesuffix("\n").removesuffix("\r")
        yield Record(row, lines.number, row, text, lines.bytes_read)


def _suggest(wanted: str, known: list[str]) -> str:
    close = difflib.get_close_matches(wanted, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _jsonl(lines: Lines, field: str | None, id_field: str | None) -> Iterator[Record]:
    row = 0
    for line in lines:
        if line.isspace():
            continue
        try:
            value = json.loads(line)
        except ValueError as e:
            detail = f"{e.msg} at column {e.colno}" if isinstance(e, json.JSONDecodeError) else e
            raise lines.fail(f"not JSON: {detail}") from None
        except RecursionError:
            raise lines.fail("not JSON that can be read: nested too deeply") from None
        if isinstance(value, str) and field is None and id_field is None:
            text = value
        else:
            text = _lookup(value, field or "text", lines)
        if not isinstance(text, str):
            raise lines.fail(f"field {field or 'text'!r} is {_json_type(text)}, expected a string")
        if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
            raise lines.fail(
                f"field {field or 'text'!r} holds half of a surrogate pair, "
                "which is no character; mend the escape"
            )
        ident: str | int = row
        if id_field is not None:
            found = _lookup(value, id_field, lines)
            if not isinstance(found, str | int) or isinstance(found, bool):
                raise lines.fail(
                    f"field {id_field!r} is {_json_type(found)}, expected a string or an integer"
                )
            ident = str(found)
        yield Record(row, lines.number, ident, text, lines.bytes_read)
        row += 1


def _json_type(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", dict: "an object", list: "an array"}
    return names.get(type(value), "a string" if isinstance(value, str) else "a number")


def _lookup(value: Any, path: str, lines: Lines) -> Any:
    """``value[path]``: the whole path as one key if there is such a key, else its dotted parts."""
    if not isinstance(value, dict):
        raise lines.fail(f"found {_json_type(value)}, expected an object with field {path!r}")
    if path in value:
        return value[path]
    at: Any = value
    for part in path.split("."):
        if isinstance(at, dict) and part in at:
            at = at[part]
        elif isinstance(at, list) and part.isdecimal() and int(part) < len(at):
            at = at[int(part)]
        else:
            raise lines.fail(
                f"no field {path!r} among {', '.join(map(repr, value)) or 'no fields'}"
                f"{_suggest(path, list(value))}"
            )
    return at


def _csv(
    lines: Lines, column: str | None, id_column: str | None, delimiter: str
) -> Iterator[Record]:
    csv.field_size_limit(MAX_LINE_BYTES)
    table = csv.reader(lines, delimiter=delimiter, strict=True)
    row, header, pick, pick_id = 0, None, 0, None
    while True:
        start = lines.number + 1
        try:
            cells = next(table, None)
        except csv.Error as e:
            raise lines.fail(f"not CSV: {e}", start) from None
        if cells is None:
            return
        if not cells:
            continue
        if header is None:
            header = cells
            find = _column_finder(header, lines)
            pick = find(column) if column is not None else _default_column(header, lines)
            pick_id = find(id_column) if id_column is not None else None
            continue
        if len(cells) != len(header):
            raise lines.fail(
                f"{len(cells)} columns, the header has {len(header)}; quote text that "
                f"contains {delimiter!r} or line ends",
                start,
            )
        ident = row if pick_id is None else cells[pick_id]
        yield Record(row, start, ident, cells[pick], lines.bytes_read)
        row += 1


def _column_finder(header: list[str], lines: Lines) -> Callable[[str], int]:
    def find(name: str) -> int:
        if header.count(name) == 1:
            return header.index(name)
        what = f"{header.count(name)} columns are" if name in header else "no column is"
        raise lines.fail(
            f"{what} named {name!r}, the header has {', '.join(map(repr, header))}"
            f"{_suggest(name, header) if name not in header else ''}",
            1,
        )

    return find


def _default_column(header: list[str], lines: Lines) -> int:
    if len(header) == 1:
        return 0
    if header.count("text") == 1:
        return header.index("text")
    raise lines.fail(
        f"which column holds the text? The header has {', '.join(map(repr, header))}; "
        "choose one with --column",
        1,
    )
