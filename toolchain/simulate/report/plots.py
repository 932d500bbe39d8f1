"""Plots of one or more policies on the same workload.

Each figure answers one question. Volery is drawn thick and in front; everybody keeps a colour
over all figures of a report.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runtime_py.batching import LaneKind
from runtime_py.errors import InvalidInput
from toolchain.simulate.metrics import Summary
from toolchain.simulate.policies import VOLERY
from toolchain.simulate.scenario import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS = "#d1495b"
_OTHERS = (
    "#30638e", "#00a6a6", "#edae49", "#7a5195", "#6b8e23",
    "#8c564b", "#22262b", "#f08fa0", "#9aa5b1",
)  # fmt: skip
_STYLE = Path(__file__).with_name("plots.mplstyle")
Runs = Sequence[tuple[Run, Summary]]


def figures(runs: Runs) -> dict[str, Figure]:
    """All figures that make sense for these runs, by name.

    Raises:
        InvalidInput: matplotlib is not installed.
    """
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput(
            "plots need matplotlib, which is not installed; run: pip install 'volery[simulate]'"
        ) from None
    draw: dict[str, Callable[[Axes, Runs], None]] = {"latency": _latency, "goodput": _goodput}
    if _kinds(runs) & {LaneKind.DECODER}:
        draw |= {"ttft": _ttft, "tpot": _tpot}
    draw |= {"over-time": _over_time, "queue": _queue, "batch-sizes": _batch_sizes}
    if any(len(s.classes) > 1 or len(s.tenants) > 1 for _, s in runs):
        draw |= {"fairness": _fairness}
    made: dict[str, Figure] = {}
    with style.context(_STYLE):
        for name, plot in draw.items():
            figure = Figure(figsize=(7.2, 3.9), layout="constrained")
            axes = figure.add_subplot()
            plot(axes, runs)
            made[name] = figure
    return made


def write(made: dict[str, Figure], folder: Path) -> list[Path]:
    """Write every figure as PNG and SVG; returns the files."""
    from matplotlib import style

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with style.context(_STYLE):
        for name, figure in made.items():
            for suffix in ("png", "svg"):
                path = folder / f"{name}.{suffix}"
                _save(figure, path, suffix)
                paths.append(path)
    return paths


def svg(figure: Figure) -> str:
    """A figure as an SVG element, the same bytes for the same figure."""
    from matplotlib import style

    buffer = io.StringIO()
    with style.context(_STYLE):
        _save(figure, buffer, "svg")
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def _save(figure: Figure, target: Path | io.StringIO, suffix: str) -> None:
    # Without a date, two runs of the same seed give the same file
    metadata: dict[str, Any] = {"Date": None} if suffix == "svg" else {"Software": None}
    figure.savefig(target, format=suffix, dpi=144, metadata=metadata)


def _kinds(runs: Runs) -> set[LaneKind]:
    return {lane.kind for run, _ in runs for lane in run.setup.lanes}


def _look(runs: Runs, i: int) -> dict[str, Any]:
    """Colour and width of the i-th policy."""
    if runs[i][1].policy == VOLERY:
        return {"color": _OURS, "linewidth": 2.4, "zorder": 5}
    others = [s.policy for _, s in runs if s.policy != VOLERY]
    place = others.index(runs[i][1].policy)
    return {"color": _OTHERS[place % len(_OTHERS)], "linewidth": 1.3, "zorder": 3}


def _legend(axes: Axes) -> None:
    """Beside the plot, where it covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)


def _cumulative(
    axes: Axes, runs: Runs, values: Callable[[Run], list[float]], offered: Callable[[Run], int]
) -> None:
    """Part of all offered requests that had their result within x: refusals keep a line low."""
    for i, (run, summary) in enumerate(runs):
        x = np.sort(np.asarray(values(run)))
        if not len(x):
            continue
        y = 100 * np.arange(1, len(x) + 1) / max(offered(run), 1)
        axes.step(x, y, where="post", label=summary.policy, **_look(runs, i))
    axes.set_xscale("log")
    axes.set_ylim(0, 101)
    axes.set_ylabel("requests, %")
    _legend(axes)


def _latency(axes: Axes, runs: Runs) -> None:
    _cumulative(
        axes,
        runs,
        lambda run: [r.latency_ns / 1e6 for r in run.log.requests if r.done],
        lambda run: len(run.log.requests),
    )
    limits = {s.slo.latency_ms for run, _ in runs for s in run.built.sources if s.slo.latency_ms}
    for limit in sorted(limits):
        axes.axvline(limit, color="#444444", linestyle=":", linewidth=1)
    axes.set_title(
        "How many have their result within a time" + (" (dotted: SLO)" if limits else "")
    )
    axes.set_xlabel("latency, ms")


def _streams(run: Run) -> int:
    return sum(1 for r in run.log.requests if r.request.kind is LaneKind.DECODER)


def _ttft(axes: Axes, runs: Runs) -> None:
    _cumulative(
        axes,
        runs,
        lambda run: [r.ttft_ns / 1e6 for r in run.log.requests if r.first_token_ns >= 0],
        _streams,
    )
    axes.set_title("Time to the first token")
    axes.set_xlabel("TTFT, ms")


def _tpot(axes: Axes, runs: Runs) -> None:
    _cumulative(
        axes,
        runs,
        lambda run: [r.tpot_ns / 1e6 for r in run.log.requests if r.done and r.num_tokens > 1],
        _streams,
    )
    axes.set_title("Time per output token")
    axes.set_xlabel("TPOT, ms")


def _goodput(axes: Axes, runs: Runs) -> None:
    names = [s.policy for _, s in runs][::-1]
    values = [s.total.goodput for _, s in runs][::-1]
    colours = [_look(runs, i)["color"] for i in range(len(runs))][::-1]
    bars = axes.barh(names, values, color=colours, height=0.62)
    axes.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
    axes.margins(x=0.12)
    axes.grid(axis="y", visible=False)
    axes.set_title("Goodput: requests that were in time")
    axes.set_xlabel("requests per second")


def _over_time(axes: Axes, runs: Runs) -> None:
    series = runs[0][1].series
    axes.fill_between(series.seconds, series.offered, color="#eeeeee", label="offered")
    for i, (_, summary) in enumerate(runs):
        of = summary.series
        axes.plot(of.seconds, of.goodput, label=summary.policy, **_look(runs, i))
    axes.set_ylim(bottom=0)
    axes.set_title("Goodput over time")
    axes.set_xlabel("seconds")
    axes.set_ylabel("requests per second")
    _legend(axes)


def _queue(axes: Axes, runs: Runs) -> None:
    for i, (_, summary) in enumerate(runs):
        of = summary.series
        axes.plot(of.seconds, of.waiting, label=summary.policy, **_look(runs, i))
    axes.set_yscale("symlog", linthresh=10)
    axes.set_ylim(bottom=0)
    axes.set_title("Requests that wait for their first step")
    axes.set_xlabel("seconds")
    axes.set_ylabel("requests")
    _legend(axes)


def _batch_sizes(axes: Axes, runs: Runs) -> None:
    for i, (_, summary) in enumerate(runs):
        sizes = summary.steps.batch_sizes
        total = sum(n * count for n, count in sizes.items())
        x = sorted(sizes)
        y = 100 * np.cumsum([n * sizes[n] for n in x]) / max(total, 1)
        axes.step(x, y, where="post", label=summary.policy, marker=".", **_look(runs, i))
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, 101)
    axes.set_title("Sequences by the size of the batch that they ran in")
    axes.set_xlabel("sequences in the batch, at most")
    axes.set_ylabel("sequences, %")
    _legend(axes)


def _fairness(axes: Axes, runs: Runs) -> None:
    by_tenant = any(len(s.tenants) > 1 for _, s in runs)
    groups = [s.tenants if by_tenant else s.classes for _, s in runs]
    names = list(groups[0])
    width = 0.8 / len(runs)
    for i, ((_, summary), of) in enumerate(zip(runs, groups, strict=True)):
        x = np.arange(len(names)) + (i - (len(runs) - 1) / 2) * width
        values = [100 * of[n].attainment if n in of else 0.0 for n in names]
        axes.bar(x, values, width * 0.92, label=summary.policy, color=_look(runs, i)["color"])
    axes.set_xticks(np.arange(len(names)), names)
    axes.set_ylim(0, 101)
    axes.grid(axis="x", visible=False)
    axes.set_title("In time, by tenant" if by_tenant else "In time, by traffic class")
    axes.set_ylabel("requests, %")
    _legend(axes)
