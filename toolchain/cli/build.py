"""``toolchain build``: compile the wasm modules."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(build)


def build() -> None:
    """Compile the four wasm modules of the runtime, reproducibly."""
    from toolchain.build import build_all

    reports = build_all()
    table = Table(box=None, pad_edge=False)
    for column in ("module", "bytes", "gzip", "sha256"):
        table.add_column(column, justify="right" if column in ("bytes", "gzip") else "left")
    for r in reports:
        table.add_row(r.name, f"{r.bytes:,}", f"{r.gzip_bytes:,}", r.sha256[:16])
    table.add_row("", "", f"{sum(r.gzip_bytes for r in reports):,}", "")
    Console().print(table)
