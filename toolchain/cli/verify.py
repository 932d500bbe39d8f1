"""``toolchain verify``: hashes, structure and goldens of an artifact."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(verify)


def verify(
    artifact: Annotated[Path, typer.Argument(help="Folder that `toolchain export` wrote.")],
) -> None:
    """Check an artifact's files, and that every backend here computes its goldens."""
    from toolchain.verify.verify import verify_artifact

    result = verify_artifact(artifact)
    console = Console(soft_wrap=True)
    console.print(
        f"{artifact}: {result.files} files, {result.total_bytes / 1e6:.2f} MB, "
        f"{result.tensors} tensors, all as the manifest says",
        markup=False,
        highlight=False,
    )
    for backend, cosine in result.goldens.items():
        console.print(f"goldens on {backend}: worst cosine {cosine:.6f}", highlight=False)
