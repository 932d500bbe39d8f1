"""What `toolchain embed` shows while it works and when it has finished, on stderr."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars
from rich.text import Text

from runtime_py.engine import EngineStats
from toolchain.embedding.job import JobResult, Progress


class EmbedDisplay:
    """A progress bar on a terminal; elsewhere only the summary; with ``quiet`` nothing.

    Args:
        input_bytes: size of the input, 0 when it is not known.
    """

    def __init__(self, *, quiet: bool, input_bytes: int = 0, console: Console | None = None):
        self._console = console or Console(stderr=True, highlight=False)
        self._quiet = quiet
        self._total = input_bytes or None
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.fields[texts]:,} texts"),
            *((BarColumn(), DownloadColumn()) if self._total else ()),
            _Rate(),
            *((TextColumn("ready in"), TimeRemainingColumn()) if self._total else ()),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bars.add_task("embed", total=self._total, texts=0, computed=0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def update(self, progress: Progress) -> None:
        if progress.resumed and not self._bars.tasks[self._task].fields["texts"]:
            self._bars.reset(self._task, completed=progress.input_bytes)  # not this run's speed
        self._bars.update(
            self._task,
            completed=progress.input_bytes,
            texts=progress.rows,
            computed=progress.rows - progress.resumed,
        )

    def summary(self, output: Path, result: JobResult, stats: EngineStats) -> None:
        """One line about the result, one about the batches."""
        if self._quiet:
            return
        computed = result.rows - result.resumed
        kept = f" ({result.resumed:,} from an earlier run)" if result.resumed else ""
        cut = f", {result.truncated:,} cut to the model's limit" if result.truncated else ""
        self._say(f"[bold]{output}[/]: {result.rows:,} texts{kept}, {result.tokens:,} tokens{cut}")
        if stats.steps:
            self._say(
                f"{computed / max(result.seconds, 1e-9):,.0f} texts/s, {stats.steps:,} steps of "
                f"{stats.seqs / stats.steps:.0f} texts and {stats.tokens / stats.steps:.0f} tokens"
            )

    def interrupted(self, rows: int, resumable: bool) -> None:
        """How to go on. Shown even when quiet."""
        if resumable:
            self._say(f"interrupted after {rows:,} texts; the same command continues")
        else:
            self._say(
                f"interrupted after {rows:,} texts; standard input cannot be read again, "
                "so nothing was kept"
            )

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True)


class _Rate(ProgressColumn):
    """Texts per second since the start of this run."""

    def render(self, task: Task) -> Text:
        seconds = task.elapsed or 0.0
        rate = task.fields["computed"] / seconds if seconds > 0 else 0.0
        return Text(f"{rate:,.0f} texts/s", style="progress.data.speed")
