"""How the accuracy of a language model is printed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from toolchain.verify.language import LanguageReport


def show_language(report: LanguageReport, title: str, console: Console) -> None:
    """Print the comparison with the f32 graph, and the greedy answers."""
    table = Table(title=f"{title}: accuracy against the f32 graph", title_justify="left")
    for column in ("tokens", "perplexity", "in f32", "rise", "same top token", "max |logit diff|"):
        table.add_column(column, justify="right")
    table.add_column("on")
    table.add_row(
        str(report.tokens),
        f"{report.perplexity:.3f}",
        f"{report.perplexity_f32:.3f}",
        f"{report.perplexity_rise:+.2%}",
        f"{report.top1:.2%}",
        f"{report.max_logit_diff:.3g}",
        report.backend,
        style=None if report.passed else "red",
    )
    console.print(table)
    weights = report.weights
    if weights.exact < weights.tensors:
        rest = (
            f"; the others differ by up to {weights.worst_relative_error:.2%} RMS "
            f"({weights.worst_tensor})"
        )
    else:
        rest = ""
    console.print(
        f"weights: {weights.exact} of {weights.tensors} stored matrices are exact{rest}",
        markup=False,
        highlight=False,
    )
    answers = Table(title="greedy answers", title_justify="left")
    answers.add_column("prompt")
    answers.add_column("equal tokens", justify="right")
    answers.add_column("answer")
    for greedy in report.greedy:
        text = " ".join(greedy.text.split())
        answers.add_row(greedy.prompt, f"{greedy.equal} of {greedy.tokens}", text)
    console.print(answers)
