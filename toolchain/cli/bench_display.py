"""What `toolchain bench` shows: a bar while it measures, then a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from toolchain.bench.measure import Row


class BenchDisplay:
    """A progress bar on a terminal's stderr; nothing elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        console = Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bars.add_task("", total=1.0)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def update(self, what: str, share: float) -> None:
        """``share`` of ``what`` is measured."""
        self._bars.update(self._task, description=what, completed=share)


def show(report: Mapping[str, Any], rows: Sequence[Row], console: Console | None = None) -> None:
    """Print the table of a report."""
    console = console or Console(highlight=False)
    decoder = report["kind"] == "decoder"
    variant = f" ({report['variant']})" if report["variant"] else ""
    threads = f"{report['threads']} thread{'s' * (report['threads'] > 1)}"
    asked = f"prompts of {report['prompt_tokens']}"
    if decoder:
        shared = report["shared_prefix"]
        asked += f" tokens{f' ({shared} shared)' if shared else ''}, "
        asked += f"answers of {report['output_tokens']}"
    else:
        asked = f"texts of about {report['prompt_tokens']} tokens, {report['texts']} a request"
    console.print(
        f"{report['model']} {report['quantization']}, {report['executor']}{variant}, {threads}: "
        f"{asked}; {report['seconds']:g} s a row",
        markup=False,
        soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    columns = _DECODER if decoder else _ENCODER
    for name, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(value(row) for _, value in columns))
    console.print(table)
    console.print(_LEGEND[decoder], style="dim", soft_wrap=True)


_LEGEND = {
    True: "times in ms; gap: between two tokens of a stream; batch: sequences of a step; "
    "busy: device time over time",
    False: "times in ms; batch: texts of a step; busy: device time over time, all steps in flight",
}


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _quantile(what: str, name: str) -> Callable[[Row], str]:
    return lambda row: _ms(getattr(getattr(row, what), name, None))


_Columns = tuple[tuple[str, Callable[[Row], str]], ...]

_DECODER: _Columns = (
    ("clients", lambda r: str(r.clients)),
    ("tokens/s", lambda r: f"{r.output_tokens_per_s:,.1f}"),
    ("prompt/s", lambda r: f"{r.input_tokens_per_s:,.1f}"),
    ("TTFT p50", _quantile("ttft", "p50")),
    ("p99", _quantile("ttft", "p99")),
    ("TPOT p50", _quantile("tpot", "p50")),
    ("p99", _quantile("tpot", "p99")),
    ("gap p99", _quantile("itl", "p99")),
    ("batch", lambda r: f"{r.batch_seqs:.1f}"),
    ("busy", lambda r: f"{100 * r.steps_in_flight:.0f}%"),
)
_ENCODER: _Columns = (
    ("clients", lambda r: str(r.clients)),
    ("texts/s", lambda r: f"{r.texts_per_s:,.1f}"),
    ("tokens/s", lambda r: f"{r.input_tokens_per_s:,.0f}"),
    ("latency p50", _quantile("latency", "p50")),
    ("p90", _quantile("latency", "p90")),
    ("p99", _quantile("latency", "p99")),
    ("queue p50", _quantile("queue", "p50")),
    ("batch", lambda r: f"{r.batch_seqs:.1f}"),
    ("busy", lambda r: f"{100 * r.steps_in_flight:.0f}%"),
)
