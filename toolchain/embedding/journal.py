"""The journal beside a partial output: how many of its rows are good, and what they hold.

Order of writes at a checkpoint: rows are appended and fsynced first, then the journal is
replaced in one rename. So whatever moment a run dies at, the journal describes a prefix of
the partial file; a resumed run cuts the file back to that prefix and continues.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runtime_py.errors import InvalidInput
from toolchain.embedding.readers import Record

VERSION = 1


def journal_path(partial: Path) -> Path:
    return partial.with_name(partial.name + ".journal")


@dataclass(frozen=True, slots=True)
class Journal:
    """A checkpoint.

    Attributes:
        settings: `Settings.as_json` of the run.
        rows: rows that are complete in the partial file.
        bytes: length of the partial file that holds exactly these rows.
        input_sha256: `InputDigest` of the records behind these rows.
        tokens: tokens computed for these rows.
        truncated: how many of these rows' texts were cut to the model's limit.
    """

    settings: dict[str, Any]
    rows: int
    bytes: int
    input_sha256: str
    tokens: int = 0
    truncated: int = 0
    version: int = field(default=VERSION)

    def save(self, path: Path) -> None:
        """Replace the journal at ``path``, durably and in one step."""
        temporary = path.with_name(path.name + ".new")
        with temporary.open("w", encoding="utf-8") as f:
            json.dump(asdict(self), f)
            f.flush()
            os.fsync(f.fileno())
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> Journal | None:
        """The journal at ``path``, or None when there is none.

        Raises:
            InvalidInput: the file is not a journal of this version.
        """
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            journal = cls(**json.loads(raw))
            whole = (journal.rows, journal.bytes, journal.tokens, journal.truncated)
            if journal.version != VERSION or any(type(n) is not int or n < 0 for n in whole):
                raise ValueError
        except (ValueError, TypeError):
            raise InvalidInput(
                f"{path} is not a journal that this version can read; "
                "--restart discards it and begins again"
            ) from None
        return journal

    def require(self, settings: dict[str, Any], partial: Path) -> None:
        """Refuse to continue a run that was asked for something else.

        Raises:
            InvalidInput: names the first setting that differs.
        """
        for name, now in settings.items():
            before = self.settings.get(name)
            if before != now:
                raise InvalidInput(
                    f"{partial} was begun with {name} = {before!r}, this run has {now!r}; "
                    "use the same options, or --restart to begin again"
                )
        if partial.stat().st_size < self.bytes:
            raise InvalidInput(
                f"{partial} has {partial.stat().st_size} bytes, its journal expects at least "
                f"{self.bytes}; --restart begins again"
            )


class InputDigest:
    """A hash over records. Equal digests mean that the same rows were read."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, record: Record) -> None:
        for part in (str(record.id), record.text):
            raw = part.encode()
            self._sha.update(len(raw).to_bytes(8, "little"))
            self._sha.update(raw)

    def hexdigest(self) -> str:
        return self._sha.hexdigest()
