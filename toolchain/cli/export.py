"""``toolchain export``: a model becomes an artifact."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from toolchain.cli.language import show_language
from toolchain.cli.progress import StageDisplay

if TYPE_CHECKING:
    from toolchain.pipeline import ExportReport
    from toolchain.verify.numerics import NumericsReport


class _Quantization(StrEnum):
    f32 = "f32"
    f16 = "f16"
    i8 = "i8"
    i4 = "i4"


class _Exporter(StrEnum):
    optimum = "optimum"
    dynamo = "dynamo"


class _Optimize(StrEnum):
    none = "none"
    ort = "ort"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(export)


def export(
    model: Annotated[
        str,
        typer.Argument(
            help="A directory, an installed model package, a hub id, a .gguf or a .onnx file."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the artifact.")],
    quantize: Annotated[
        _Quantization, typer.Option("--quantize", "-q", help="Format of the weights.")
    ] = _Quantization.i8,
    activations: Annotated[
        int | None,
        typer.Option(help="Bits of a quantized language model's activations: 16 (default) or 8."),
    ] = None,
    exporter: Annotated[_Exporter, typer.Option(help="What traces the model.")] = _Exporter.optimum,
    opset: Annotated[int | None, typer.Option(help="ONNX operator set.")] = None,
    optimize: Annotated[
        _Optimize, typer.Option(help="Run an optimizer on the graph first.")
    ] = _Optimize.none,
    revision: Annotated[str | None, typer.Option(help="Branch, tag or commit on the hub.")] = None,
    offline: Annotated[
        bool | None,
        typer.Option("--offline/--online", help="Use only, or never only, the hub's cache."),
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="A lower length limit than the model's own.")
    ] = None,
    keep_onnx: Annotated[
        bool,
        typer.Option(
            "--keep-onnx",
            help="Keep the f32 graph (and a language model's quantized one) in OUTPUT.onnx/.",
        ),
    ] = False,
    allow_accuracy_loss: Annotated[
        bool, typer.Option("--allow-accuracy-loss", help="Write it even below the accuracy gate.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing artifact.")] = False,
) -> None:
    """Export a model, quantize it, measure what that cost, and write an artifact."""
    from toolchain.pipeline import STAGES, export_model

    with StageDisplay(STAGES) as display:
        report = export_model(
            model,
            output,
            scheme=quantize.value,
            activation_bits=activations,
            exporter=exporter.value,
            opset=opset,
            optimize=optimize.value,
            revision=revision,
            offline=offline,
            keep_onnx=keep_onnx,
            allow_accuracy_loss=allow_accuracy_loss,
            max_tokens=max_tokens,
            force=force,
            progress=display.update,
        )
    show(report, Console())


def show(report: ExportReport, console: Console) -> None:
    """Print the numerics table and where the artifact is."""
    from toolchain.verify.language import LanguageReport

    numerics = report.numerics
    if isinstance(numerics, LanguageReport):
        show_language(numerics, f"{report.model_id}, {report.scheme}", console)
    else:
        show_vectors(numerics, report, console)
    for note in report.notes:
        console.print(f"note: {note}", markup=False)
    goldens = ", ".join(f"{b} {c:.6f}" for b, c in report.verified.goldens.items())
    console.print(f"goldens: {goldens}", markup=False, highlight=False)
    if report.onnx_path:
        console.print(f"graph: {report.onnx_path}", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{report.path}: {report.total_bytes / 1e6:.2f} MB in {sum(report.seconds.values()):.0f} s",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def show_vectors(n: NumericsReport, report: ExportReport, console: Console) -> None:
    """The accuracy of an embedding model."""
    table = Table(title=f"{report.model_id}: accuracy against the f32 graph", title_justify="left")
    for column in ("scheme", "texts", "worst cosine", "mean cosine", "max |diff|", "gate", "on"):
        table.add_column(column, justify="left" if column in ("scheme", "on") else "right")
    table.add_row(
        report.scheme,
        str(n.texts),
        f"{n.worst_cosine:.6f}",
        f"{n.mean_cosine:.6f}",
        f"{n.max_abs_diff:.2e}",
        f"{n.gate:g}",
        n.backend,
        style=None if n.passed else "red",
    )
    console.print(table)
