"""JSON from untrusted files: bounded, without duplicate keys, with typed field access."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import NoReturn

from runtime_py.errors import ArtifactCorrupt

_HINT = "export the model again or download it anew"


def looks_like_html(data: bytes) -> bool:
    """Whether ``data`` is a web page, as static hosts answer for a file they lack."""
    head = data[:512].removeprefix(b"\xef\xbb\xbf").lstrip()[:14].lower()
    return head.startswith((b"<!doctype", b"<html", b"<head", b"<?xml", b"<body"))


def parse(data: bytes, file: str, max_bytes: int) -> object:
    """The JSON value in ``data``; ``file`` names it in errors.

    Raises:
        ArtifactCorrupt: not JSON, larger than ``max_bytes``, or a key appears twice.
    """
    if len(data) > max_bytes:
        raise ArtifactCorrupt(f"{file} has {len(data)} bytes, expected at most {max_bytes}")
    if looks_like_html(data):
        raise ArtifactCorrupt(
            f"{file} holds an HTML page, expected JSON; the server answered with a page "
            "instead of the file: check the address"
        )

    def no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise ArtifactCorrupt(f"{file}: a key appears twice; {_HINT}")
        return result

    def no_constant(text: str) -> NoReturn:
        raise ArtifactCorrupt(f"{file} holds {text}, which is not JSON; {_HINT}")

    try:
        value: object = json.loads(
            data.decode(), object_pairs_hook=no_duplicates, parse_constant=no_constant
        )
    except RecursionError:
        raise ArtifactCorrupt(f"{file} is nested too deeply; {_HINT}") from None
    except ValueError as e:  # JSON, UTF-8 and the limit on an integer's digits
        raise ArtifactCorrupt(f"{file} is not valid JSON ({e}); {_HINT}") from None
    return value


class Record:
    """A JSON object whose fields are read with their types checked.

    Every accessor raises `ArtifactCorrupt` with the field's full path. Unknown fields
    are left alone: a later minor version may add some.
    """

    def __init__(self, value: object, file: str, path: str = "") -> None:
        self._file, self._path = file, path
        if not isinstance(value, dict):
            raise self.error("", value, "an object")
        self._fields: dict[str, object] = value

    def error(self, name: str, found: object, expected: str) -> ArtifactCorrupt:
        where = ".".join(p for p in (self._path, name) if p) or "the top level"
        shown = repr(found)
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return ArtifactCorrupt(f"{self._file}: {where} is {shown}, expected {expected}; {_HINT}")

    def __contains__(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def value(self, name: str) -> object:
        if name not in self._fields:
            raise ArtifactCorrupt(
                f"{self._file}: {'.'.join(p for p in (self._path, name) if p)} is missing; {_HINT}"
            )
        return self._fields[name]

    def text(self, name: str, max_chars: int = 1024) -> str:
        v = self.value(name)
        if not isinstance(v, str) or not v or len(v) > max_chars:
            raise self.error(name, v, f"a text of 1 to {max_chars} characters")
        return v

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def flag(self, name: str) -> bool:
        v = self.value(name)
        if not isinstance(v, bool):
            raise self.error(name, v, "true or false")
        return v

    def integer(self, name: str, low: int, high: int) -> int:
        v = self.value(name)
        if not isinstance(v, int) or isinstance(v, bool) or not low <= v <= high:
            raise self.error(name, v, f"an integer in {low}..{high}")
        return v

    def number(self, name: str) -> float:
        return self._number(name, self.value(name))

    def _number(self, name: str, v: object) -> float:
        if isinstance(v, bool) or not isinstance(v, int | float):
            raise self.error(name, v, "a finite number")
        try:
            x = float(v)
        except OverflowError:
            x = math.inf
        if not math.isfinite(x):
            raise self.error(name, v, "a finite number")
        return x

    def _list(self, name: str, max_items: int) -> list[object]:
        v = self.value(name)
        if not isinstance(v, list) or len(v) > max_items:
            raise self.error(name, v, f"a list of at most {max_items} items")
        return v

    def texts(self, name: str, max_items: int = 256) -> tuple[str, ...]:
        items = self._list(name, max_items)
        if not all(isinstance(i, str) and i for i in items):
            raise self.error(name, items, "a list of texts")
        return tuple(str(i) for i in items)

    def integers(self, name: str, low: int, high: int, max_items: int) -> tuple[int, ...]:
        result = []
        for i in self._list(name, max_items):
            if not isinstance(i, int) or isinstance(i, bool) or not low <= i <= high:
                raise self.error(name, i, f"integers in {low}..{high}")
            result.append(i)
        return tuple(result)

    def numbers(self, name: str, max_items: int) -> tuple[float, ...]:
        return tuple(self._number(name, i) for i in self._list(name, max_items))

    def record(self, name: str) -> Record:
        path = f"{self._path}.{name}" if self._path else name
        return Record(self.value(name), self._file, path)

    def records(self, name: str, max_items: int) -> tuple[Record, ...]:
        return tuple(
            Record(v, self._file, f"{name}[{i}]") for i, v in enumerate(self._list(name, max_items))
        )
