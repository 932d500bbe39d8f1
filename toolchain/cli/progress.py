"""One progress line per stage of a long command."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class StageDisplay:
    """Shows stages on the terminal; plain finished lines when the output is redirected."""

    def __init__(self, stages: Sequence[str], console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("{task.fields[remark]}"),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {
            s: self._progress.add_task(s, total=1.0, start=False, remark="") for s in stages
        }

    def __enter__(self) -> StageDisplay:
        self._progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.__exit__(kind, error, trace)

    def update(self, stage: str, share: float, remark: str) -> None:
        """A `toolchain.stages.Progress`."""
        task = self._tasks[stage]
        if share == 0:
            self._progress.start_task(task)
        self._progress.update(task, completed=share, remark=remark)
        if share == 1 and not self._console.is_terminal:
            self._console.print(f"{stage:<10}{remark}", markup=False, highlight=False)
