"""Loading a model for a command, with a progress line while it takes long."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn


class Executor(StrEnum):
    """Backends that `runtime_py.load` knows."""

    auto = "auto"
    wasmtime = "wasmtime"
    reference = "reference"


class KVFormat(StrEnum):
    """How a key-value cache stores numbers."""

    f32 = "f32"
    f16 = "f16"


class TorchDevice(StrEnum):
    """Where torch computes."""

    cpu = "cpu"
    cuda = "cuda"


Source = Annotated[
    str, typer.Argument(help="Folder that `toolchain export` wrote, or its http(s) address.")
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, max=256, help="Of the backend (if not given: the cores, at most 8)."),
]
ExecutorOption = Annotated[Executor, typer.Option(help="The backend.")]
DeviceOption = Annotated[
    TorchDevice | None, typer.Option(help="Reference backend: compute with torch, here.")
]
KVFormatOption = Annotated[
    KVFormat | None, typer.Option(help="Of the key-value cache; f16 takes half the memory.")
]
KVMemory = Annotated[
    int | None, typer.Option(min=1, help="MiB for the key-value cache (if not given: 256).")
]


def load_options(
    executor: Executor,
    threads: int | None,
    device: TorchDevice | None,
    kv_format: KVFormat | None = None,
    kv_memory: int | None = None,
) -> dict[str, Any]:
    """Keyword arguments of `runtime_py.load`."""
    return {
        "executor": executor.value,
        "threads": threads,
        "torch_device": device.value if device else None,
        "kv_format": kv_format.value if kv_format else None,
        "kv_bytes": kv_memory << 20 if kv_memory else None,
    }


@contextlib.contextmanager
def loading(source: str, *, quiet: bool = False) -> Iterator[dict[str, Any]]:
    """Show that a model is being loaded; yields the ``progress`` argument of `load`."""
    console = Console(stderr=True, highlight=False)
    bars = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        *((BarColumn(), DownloadColumn()) if "://" in source else ()),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )
    task = bars.add_task(f"loading {source}", total=None)

    def progress(here: int, total: int) -> None:
        bars.update(task, completed=here, total=total)

    with bars:
        yield {"progress": progress}
