"""One self-contained report page: no script, no request to anywhere."""

from __future__ import annotations

import html
from collections.abc import Sequence

from toolchain.simulate.metrics import Group, Spread, Summary
from toolchain.simulate.policies import VOLERY
from toolchain.simulate.report.style import CSS

_CAPTIONS = {
    "latency": "Every request counts, also those that were refused: a line that ends below "
    "100% belongs to a policy that turned requests away. Left is better.",
    "goodput": "Requests per second that had their result, and within their service level "
    "objective.",
    "ttft": "From the arrival of a prompt to its first token.",
    "tpot": "The mean time between two tokens of a stream.",
    "over-time": "The grey area is what was asked for.",
    "queue": "Requests that had arrived and were in no step yet, when a step started.",
    "batch-sizes": "Where a batch costs what its texts cost, small ones let everybody go sooner.",
    "fairness": "The part of each group's requests that were in time.",
}


def page(
    title: str,
    facts: Sequence[tuple[str, str]],
    summaries: Sequence[Summary],
    plots: dict[str, str],
) -> str:
    """The page.

    Args:
        title: what was simulated.
        facts: name and value, as text, of everything one needs to repeat it.
        summaries: of the policies, Volery first.
        plots: SVG elements by name.
    """
    best = max((s.total.goodput for s in summaries), default=0.0)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_text(title)}</title>",
        f"<style>{CSS}</style></head><body><main>",
        f"<h1>{_text(title)}</h1>",
        f'<p class="lead">{_lead(summaries)}</p>',
        '<dl class="facts">',
        *[f"<div><dt>{_text(k)}</dt><dd>{_text(v)}</dd></div>" for k, v in facts],
        "</dl>",
        "<h2>Policies</h2>",
        _policies(summaries, best),
    ]
    for heading, groups in (("Classes", "classes"), ("Tenants", "tenants"), ("Models", "lanes")):
        if any(len(getattr(s, groups)) > 1 for s in summaries):
            parts += [f"<h2>{heading}</h2>", _groups(summaries, groups)]
    parts.append('<h2>Plots</h2><div class="plots">')
    for name, svg in plots.items():
        caption = _CAPTIONS.get(name, "")
        parts.append(f"<figure>{svg}<figcaption>{_text(caption)}</figcaption></figure>")
    parts += ["</div>", _legend(summaries), "</main></body></html>"]
    return "\n".join(parts) + "\n"


def _lead(summaries: Sequence[Summary]) -> str:
    ours = next((s for s in summaries if s.policy == VOLERY), None)
    others = [s for s in summaries if s.policy != VOLERY]
    if ours is None or not others:
        return "One policy on a simulated device."
    best = max(others, key=lambda s: s.total.goodput)
    if not best.total.goodput:
        return (
            f"Volery serves {ours.total.goodput:.2f} requests per second in time, nobody else any."
        )
    ratio = ours.total.goodput / best.total.goodput
    return (
        f"Volery serves <b>{ours.total.goodput:.2f}</b> requests per second in time, "
        f"<b>{ratio:.2f} times</b> as many as the best of the others "
        f"({_text(best.title)}: {best.total.goodput:.2f})."
    )


def _policies(summaries: Sequence[Summary], best: float) -> str:
    generates = any(s.total.ttft_ms is not None for s in summaries)
    head = ["policy", "goodput /s", "in time", "refused", "p50 ms", "p99 ms"]
    preempts = any(s.preemptions for s in summaries)
    head += ["TTFT p99 ms", "TPOT p99 ms"] if generates else []
    head += ["preempted", "recomputed"] if preempts else []
    pads = any(s.steps.padding > 0 for s in summaries)
    head += ["tokens/s", "batch", "device use", *(["padding"] if pads else []), "padding avoided"]
    rows = []
    for s in summaries:
        cells = [
            f"{s.total.goodput:.2f}",
            f"{100 * s.total.attainment:.1f}%",
            f"{sum(s.total.refused.values()):,}",
            _ms(s.total.latency_ms, "p50"),
            _ms(s.total.latency_ms, "p99"),
        ]
        if generates:
            cells += [_ms(s.total.ttft_ms, "p99"), _ms(s.total.tpot_ms, "p99")]
        if preempts:
            cells += [f"{s.preemptions:,}", f"{s.recomputed_tokens:,}"]
        cells += [
            f"{s.tokens_per_s:,.0f}",
            f"{s.steps.seqs.mean:.1f}" if s.steps.seqs else "–",
            f"{100 * s.steps.device_use:.1f}%",
            *([f"{100 * s.steps.padding:.1f}%"] if pads else []),
            f"{100 * s.steps.padding_avoided:.1f}%",
        ]
        bar = f'<i style="width:{100 * s.total.goodput / best if best else 0:.1f}%"></i>'
        cells[0] = f'<span class="bar">{bar}</span>{cells[0]}'
        ours = ' class="ours"' if s.policy == VOLERY else ""
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f'<tr{ours}><th title="{_text(s.title)}">{_text(s.policy)}</th>{row}</tr>')
    return _table(head, rows)


def _groups(summaries: Sequence[Summary], groups: str) -> str:
    fair = any(g.fair_share is not None for s in summaries for g in getattr(s, groups).values())
    head = ["policy", "", "offered", "goodput /s", "in time", "refused", "p50 ms", "p99 ms"]
    head += ["of its fair share"] if fair else []
    rows = []
    for s in summaries:
        of: dict[str, Group] = getattr(s, groups)
        for i, (name, g) in enumerate(of.items()):
            cells = [
                f"{g.offered:,}",
                f"{g.goodput:.2f}",
                f"{100 * g.attainment:.1f}%",
                f"{sum(g.refused.values()):,}",
                _ms(g.latency_ms, "p50"),
                _ms(g.latency_ms, "p99"),
            ]
            if fair:
                cells.append(f"{100 * g.fair_share:.0f}%" if g.fair_share is not None else "–")
            ours = ' class="ours"' if s.policy == VOLERY else ""
            row = "".join(f"<td>{cell}</td>" for cell in cells)
            policy = "" if i else _text(s.policy)
            name_cell = f'<td class="name">{_text(name)}</td>'
            rows.append(f"<tr{ours}><th>{policy}</th>{name_cell}{row}</tr>")
    return _table(head, rows)


def _table(head: Sequence[str], rows: Sequence[str]) -> str:
    cells = "".join(f"<th>{_text(cell)}</th>" for cell in head)
    body = "\n".join(rows)
    return (
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _legend(summaries: Sequence[Summary]) -> str:
    names = "".join(
        f"<div><dt>{_text(s.policy)}</dt><dd>{_text(s.title)}</dd></div>" for s in summaries
    )
    return (
        f'<h2>Who is who</h2><dl class="facts">{names}</dl>'
        '<p class="small">Volery is the production scheduler itself, driven by a virtual clock. '
        "The others are models of the named systems' scheduling policies, written after their "
        "documentation and given limits that suit the device. They say nothing about those "
        "systems' kernels, front ends or networks.</p>"
    )


def _ms(spread: Spread | None, name: str) -> str:
    return f"{getattr(spread, name):,.0f}" if spread is not None else "–"


def _text(value: str) -> str:
    return html.escape(value, quote=True)
