"""Results as tables on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from toolchain.simulate.metrics import Group, Spread, Summary

_Column = tuple[str, Callable[[Summary], str]]


def _ms(spread: Spread | None, name: str) -> str:
    return f"{getattr(spread, name):,.0f}" if spread is not None else "–"


def _percent(value: float) -> str:
    return f"{100 * value:.1f}%"


_COLUMNS: Sequence[_Column] = (
    ("goodput /s", lambda s: f"{s.total.goodput:.2f}"),
    ("in time", lambda s: _percent(s.total.attainment)),
    ("refused", lambda s: f"{sum(s.total.refused.values()):,}"),
    ("p50 ms", lambda s: _ms(s.total.latency_ms, "p50")),
    ("p99 ms", lambda s: _ms(s.total.latency_ms, "p99")),
    ("TTFT p99", lambda s: _ms(s.total.ttft_ms, "p99")),
    ("TPOT p99", lambda s: _ms(s.total.tpot_ms, "p99")),
    ("tokens/s", lambda s: f"{s.tokens_per_s:,.0f}"),
    ("batch", lambda s: f"{s.steps.seqs.mean:.1f}" if s.steps.seqs else "–"),
    ("use", lambda s: _percent(s.steps.device_use)),
    ("padding", lambda s: _percent(s.steps.padding)),
    ("avoided", lambda s: _percent(s.steps.padding_avoided)),
    ("preempted", lambda s: f"{s.preemptions:,}"),
    ("recomputed", lambda s: f"{s.recomputed_tokens:,}"),
)
_GENERATES = {"TTFT p99", "TPOT p99", "preempted", "recomputed"}
_ENCODES = {"padding", "avoided"}


def policy_table(summaries: Sequence[Summary]) -> Table:
    """One row per policy; the best goodput stands out."""
    generates = any(s.total.ttft_ms is not None for s in summaries)
    encodes = any(lane.endswith("/embed") for s in summaries for lane in s.lanes)
    hidden = (set() if generates else _GENERATES) | (set() if encodes else _ENCODES)
    if not any(s.steps.padding for s in summaries):
        hidden.add("padding")
    columns = [column for column in _COLUMNS if column[0] not in hidden]
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", no_wrap=True)
    for name, _ in columns:
        table.add_column(name, justify="right", no_wrap=True)
    best = max(s.total.goodput for s in summaries)
    for summary in summaries:
        style = "bold green" if summary.total.goodput >= best and len(summaries) > 1 else ""
        table.add_row(summary.policy, *[show(summary) for _, show in columns], style=style)
    return table


def group_table(title: str, summaries: Sequence[Summary], groups: str) -> Table | None:
    """A row per policy and class, tenant or lane; None where there is only one of them.

    Args:
        title: of the first column.
        summaries: of the policies.
        groups: attribute of `Summary`: classes, tenants or lanes.
    """
    parts: list[tuple[str, dict[str, Group]]] = [(s.policy, getattr(s, groups)) for s in summaries]
    if all(len(of) < 2 for _, of in parts):
        return None
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("policy", no_wrap=True)
    table.add_column(title, no_wrap=True)
    for name in ("offered", "goodput /s", "in time", "refused", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right", no_wrap=True)
    fair = any(g.fair_share is not None for _, of in parts for g in of.values())
    if fair:
        table.add_column("of its fair share", justify="right", no_wrap=True)
    for policy, of in parts:
        for i, (name, group) in enumerate(of.items()):
            cells = [
                f"{group.offered:,}",
                f"{group.goodput:.2f}",
                _percent(group.attainment),
                f"{sum(group.refused.values()):,}",
                _ms(group.latency_ms, "p50"),
                _ms(group.latency_ms, "p99"),
            ]
            if fair:
                cells.append(_percent(group.fair_share) if group.fair_share is not None else "–")
            table.add_row("" if i else policy, name, *cells)
    return table


def show(console: Console, summaries: Sequence[Summary]) -> None:
    """Everything that there is to tell."""
    console.print(policy_table(summaries))
    for title, groups in (("class", "classes"), ("tenant", "tenants"), ("lane", "lanes")):
        table = group_table(title, summaries, groups)
        if table is not None:
            console.print()
            console.print(table)
