"""The bulk-embedding job: records in, rows out, checkpoints between."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from runtime_py.errors import InvalidInput, VoleryError
from toolchain.embedding.journal import InputDigest, Journal, journal_path
from toolchain.embedding.lock import exclusive
from toolchain.embedding.pump import pump
from toolchain.embedding.readers import Record
from toolchain.embedding.settings import Settings
from toolchain.embedding.writers import RowWriter, Vectors, writer_for

APPEND_ROWS = 256
APPEND_SECONDS = 0.25
CHECKPOINT_SECONDS = 2.0


class Embedded(NamedTuple):
    """What an embedder gives for one text.

    Attributes:
        vector: f32 [dimensions].
        tokens: tokens computed for it, special tokens included.
        truncated: its text was cut to the model's limit.
    """

    vector: Vectors
    tokens: int
    truncated: bool


Embedder = Callable[[AsyncIterator[str]], AsyncGenerator[Embedded, None]]
"""Turns texts into results, in order, reading only a bounded number of texts ahead."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a job stands; ``resumed`` rows of ``rows`` were there from an earlier run."""

    rows: int
    resumed: int
    tokens: int
    truncated: int
    input_bytes: int


@dataclass(frozen=True, slots=True)
class JobResult:
    rows: int
    resumed: int
    tokens: int
    truncated: int
    seconds: float


class EmbedJob:
    """One run of bulk embedding.

    Args:
        settings: what decides the output's bytes.
        records: the input.
        output: the finished file; rows gather in ``OUTPUT.partial`` until then.
        embed: the model.
        resumable: the input can be read again, so keep a journal.
        restart: discard what an earlier run left instead of continuing it.
        overwrite: replace ``output`` where it exists already.
        on_progress: called after rows were appended.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        settings: Settings,
        records: Iterator[Record],
        output: Path,
        embed: Embedder,
        *,
        resumable: bool = True,
        restart: bool = False,
        overwrite: bool = False,
        on_progress: Callable[[Progress], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._records, self._embed = settings, records, embed
        self._resumable, self._restart, self._overwrite = resumable, restart, overwrite
        self._on_progress, self._clock = on_progress, clock
        self.output = output
        self.partial = output.with_name(output.name + ".partial")
        self._journal_path = journal_path(self.partial)
        self._digest = InputDigest()
        self._rows = self._resumed = self._tokens = self._truncated = self._input_bytes = 0
        self._pending: list[tuple[Record, Embedded]] = []
        self._input_error: Exception | None = None
        self._checkpoint_at = self._append_at = 0.0

    @property
    def rows(self) -> int:
        """Rows that are in the partial file."""
        return self._rows

    async def run(self) -> JobResult:
        """Run to the end.

        However it ends early (an error in the input, cancellation, a kill), a later run
        with equal settings continues, if ``resumable``. Without a row there is nothing to
        continue, and nothing is left.

        Raises:
            InvalidInput: the output exists, or is no file; the input breaks its format; what
                an earlier run left does not fit this one.
            VoleryError: what the model raised, with the line it raised it for.
        """
        if self.output.exists() and not self.output.is_file():
            raise InvalidInput(f"{self.output} is not a regular file; choose another name")
        if self.output.exists() and not self._overwrite:
            raise InvalidInput(
                f"{self.output} exists already; --overwrite replaces it, or choose another name"
            )
        with exclusive(self.partial.with_name(self.partial.name + ".lock")):
            return await self._locked()

    async def _locked(self) -> JobResult:
        started = self._clock()
        journal = self._earlier()
        writer = writer_for(self._settings, self.partial, journal.bytes if journal else 0)
        self._checkpoint_at = started + CHECKPOINT_SECONDS
        try:
            if journal is None:
                self._journal_path.unlink(missing_ok=True)
            try:
                await self._stream(writer)
            finally:
                self._append(writer)
                if self._resumable:
                    self._checkpoint(writer)
            if self._input_error is not None:
                raise self._input_error
            await asyncio.to_thread(writer.finish, self._rows, self.output)
        except BaseException:
            writer.close()
            if not (self._resumable and self._rows):  # nothing that a later run could use
                self.partial.unlink(missing_ok=True)
                self._journal_path.unlink(missing_ok=True)
            raise
        self._journal_path.unlink(missing_ok=True)
        return JobResult(
            self._rows, self._resumed, self._tokens, self._truncated, self._clock() - started
        )

    def _earlier(self) -> Journal | None:
        """The checkpoint to continue from; the records before it are read and compared."""
        if self._restart or not self.partial.exists():
            return None
        journal = Journal.load(self._journal_path)
        if journal is None or not journal.rows:
            return None
        if not self._resumable:
            raise InvalidInput(
                f"{self.partial} is an unfinished run, which standard input cannot continue; "
                "--restart discards it"
            )
        journal.require(self._settings.as_json(), self.partial)
        for _ in range(journal.rows):
            record = next(self._records, None)
            if record is None:
                break
            self._digest.add(record)
            self._input_bytes = record.end
        if self._digest.hexdigest() != journal.input_sha256:
            raise InvalidInput(
                f"the first {journal.rows} texts of the input are not those that {self.partial} "
                "was made from; use the same input, or --restart to begin again"
            )
        self._rows = self._resumed = journal.rows
        self._tokens, self._truncated = journal.tokens, journal.truncated
        return journal

    async def _stream(self, writer: RowWriter) -> None:
        waiting: deque[Record] = deque()
        async with aclosing(self._embed(self._texts(waiting))) as results:
            blamed = _blamed(results, waiting)
            while (result := await self._next(blamed, writer)) is not None:
                self._pending.append((waiting.popleft(), result))
                now = self._clock()
                due = now >= self._checkpoint_at
                if due or now >= self._append_at or len(self._pending) >= APPEND_ROWS:
                    self._append(writer)
                    self._append_at = now + APPEND_SECONDS
                if due and self._resumable:
                    await asyncio.to_thread(self._checkpoint, writer)
                if due:
                    self._checkpoint_at = self._clock() + CHECKPOINT_SECONDS

    async def _next(self, results: AsyncIterator[Embedded], writer: RowWriter) -> Embedded | None:
        """The next result. While it is long in coming, as from an input that pauses, what is
        finished is appended, so that it is shown and kept."""
        if not self._pending:
            return await anext(results, None)
        coming = asyncio.ensure_future(_first(results))
        try:
            await asyncio.wait({coming}, timeout=APPEND_SECONDS)
            if not coming.done():
                self._append(writer)
            return await coming
        except BaseException:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)
            raise

    async def _texts(self, waiting: deque[Record]) -> AsyncIterator[str]:
        """The texts; a fault in the input ends them, so that the rows before it are kept."""
        try:
            async for record in pump(self._records):
                waiting.append(record)
                yield record.text
        except (VoleryError, OSError) as e:
            self._input_error = e

    def _append(self, writer: RowWriter) -> None:
        if not self._pending:
            return
        taken, self._pending = self._pending, []
        records = [record for record, _ in taken]
        writer.append(records, np.stack([result.vector for _, result in taken]))
        for record, result in taken:
            self._digest.add(record)
            self._tokens += result.tokens
            self._truncated += result.truncated
        self._rows += len(taken)
        self._input_bytes = records[-1].end
        self._on_progress(
            Progress(self._rows, self._resumed, self._tokens, self._truncated, self._input_bytes)
        )

    def _checkpoint(self, writer: RowWriter) -> None:
        Journal(
            self._settings.as_json(),
            self._rows,
            writer.sync(),
            self._digest.hexdigest(),
            self._tokens,
            self._truncated,
        ).save(self._journal_path)


async def _blamed(
    results: AsyncIterator[Embedded], waiting: deque[Record]
) -> AsyncIterator[Embedded]:
    """``results``; an error of the model names the line it is about."""
    try:
        async for result in results:
            yield result
    except VoleryError as e:
        if waiting:
            e.args = (f"line {waiting[0].line}: {e}",)
        raise


async def _first(results: AsyncIterator[Embedded]) -> Embedded | None:
    return await anext(results, None)
