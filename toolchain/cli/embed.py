"""``toolchain embed``: texts from a file or standard input become a file of vectors."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from toolchain.embedding.settings import (
    InputFormat,
    OutputFormat,
    Settings,
    Truncate,
    VectorType,
)

if TYPE_CHECKING:
    from toolchain.cli.embed_display import EmbedDisplay
    from toolchain.embedding.readers import Record

_INTERRUPTED = 128


class _Executor(StrEnum):
    auto = "auto"
    wasmtime = "wasmtime"
    reference = "reference"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(embed)


def embed(
    artifact: Annotated[Path, typer.Argument(help="Folder that `toolchain export` wrote.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: .npy, .jsonl or .parquet.")
    ],
    input: Annotated[
        str, typer.Argument(help="File of texts; - is standard input.", show_default=True)
    ] = "-",
    format: Annotated[
        InputFormat | None, typer.Option(help="Of the input; by its extension if not given.")
    ] = None,
    field: Annotated[
        str | None,
        typer.Option(help="JSONL: where the text is, as in `doc.body` (if not given: text)."),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(help="CSV, TSV: the column that holds the text (if not given: text)."),
    ] = None,
    id: Annotated[
        str | None,
        typer.Option(help="Field or column to keep as the row's id (if not given: its number)."),
    ] = None,
    output_format: Annotated[
        OutputFormat | None, typer.Option(help="Of the output; by its extension if not given.")
    ] = None,
    text: Annotated[
        bool, typer.Option("--text/--no-text", help="Keep the texts in JSONL and Parquet.")
    ] = True,
    prompt_name: Annotated[
        str | None, typer.Option(help="Which of the model's prompts to put before each text.")
    ] = None,
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="Keep this many leading dimensions.")
    ] = None,
    dtype: Annotated[VectorType, typer.Option(help="Of the stored numbers.")] = VectorType.FLOAT32,
    truncate: Annotated[
        Truncate, typer.Option(help="Cut a text that is too long, or stop at it.")
    ] = Truncate.END,
    batch_window: Annotated[
        int, typer.Option(min=1, max=8192, help="Most texts in flight.")
    ] = 1024,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Of the backend (if not given: the cores, at most 8)."),
    ] = None,
    executor: Annotated[_Executor, typer.Option(help="The backend.")] = _Executor.auto,
    resume: Annotated[
        bool,
        typer.Option("--resume/--restart", help="Continue an interrupted run, or discard it."),
    ] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the output if it exists.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Neither progress nor summary.")
    ] = False,
) -> None:
    """Embed a file of texts: lines, JSONL, CSV or TSV to .npy, JSONL or Parquet.

    Files may be larger than memory. The output appears under its name when it is complete;
    until then rows gather in OUTPUT.partial, and the same command continues there after
    Ctrl-C, a kill or a fault in the input. Row i of the output is text i of the input.
    """
    from runtime_py.errors import InvalidInput
    from toolchain.cli.embed_display import EmbedDisplay

    if field is not None and column is not None:
        raise InvalidInput("--field and --column are both set; --field is for JSONL, --column else")
    stdin = input == "-"
    read_as = format or InputFormat.of(Path("" if stdin else input))
    if (column is not None and read_as is InputFormat.JSONL) or (
        field is not None and read_as in (InputFormat.CSV, InputFormat.TSV)
    ):
        right = "--field" if read_as is InputFormat.JSONL else "--column"
        raise InvalidInput(f"the input is read as {read_as}; name its text with {right}")
    settings = Settings(
        artifact_sha256=_manifest_sha256(artifact),
        executor="wasmtime" if executor is _Executor.auto else executor,
        dimensions=dimensions or _dimensions(artifact),
        input_format=read_as,
        output_format=output_format or OutputFormat.of(output),
        field=field if field is not None else column,
        id_field=id,
        prompt_name=prompt_name,
        dtype=dtype,
        truncate=truncate,
        keep_text=text,
    )
    display = EmbedDisplay(quiet=quiet, input_bytes=0 if stdin else _size(Path(input)))
    run = _Run(artifact, settings, output, threads, batch_window, display)
    with _records(input, settings) as records:
        code = asyncio.run(
            run(records, resumable=not stdin, restart=not resume, overwrite=overwrite)
        )
    if code:
        raise typer.Exit(code)


def _manifest_sha256(artifact: Path) -> str:
    from runtime_py.errors import ArtifactMissing

    try:
        return hashlib.sha256((artifact / "manifest.json").read_bytes()).hexdigest()
    except OSError as e:
        raise ArtifactMissing(
            f"manifest.json cannot be read in {artifact} ({e.strerror}); expected an artifact "
            "made by `toolchain export`"
        ) from None


def _dimensions(artifact: Path) -> int:
    from runtime_py.artifact import Manifest
    from runtime_py.errors import ArtifactUnsupported

    embedding = Manifest.parse((artifact / "manifest.json").read_bytes()).embedding
    if embedding is None:
        raise ArtifactUnsupported(f"{artifact} makes no embeddings; expected 'embed' in its tasks")
    return embedding.dimensions


def _size(path: Path) -> int:
    """Bytes of a regular file; 0 for a pipe, and for what opening will complain about."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextlib.contextmanager
def _records(source: str, settings: Settings) -> Iterator[Iterator[Record]]:
    from toolchain.embedding.readers import open_records, stdin_records

    chosen = settings.input_format, settings.field, settings.id_field
    if source == "-":
        yield stdin_records(*chosen)
    else:
        with open_records(Path(source), *chosen) as records:
            yield records


class _Run:
    """The job on the event loop: the model, the display, and signals."""

    def __init__(
        self,
        artifact: Path,
        settings: Settings,
        output: Path,
        threads: int | None,
        window: int,
        display: EmbedDisplay,
    ) -> None:
        self._artifact, self._settings, self._output = artifact, settings, output
        self._threads, self._window, self._display = threads, window, display
        self._signal = 0

    async def __call__(
        self, records: Iterator[Record], *, resumable: bool, restart: bool, overwrite: bool
    ) -> int:
        """Exit status: 0, or 128 + the signal that ended the run."""
        import runtime_py as rt
        from toolchain.embedding.embedder import ModelEmbedder
        from toolchain.embedding.job import EmbedJob

        asked, display = self._settings, self._display
        self._catch_signals()
        job: EmbedJob | None = None
        try:
            async with await rt.load(
                self._artifact,
                executor=asked.executor,  # type: ignore[arg-type]
                threads=self._threads,
            ) as model:
                embedder = ModelEmbedder(
                    model,
                    self._window,
                    asked.prompt_name,
                    asked.dimensions,
                    asked.truncate,
                )
                job = EmbedJob(
                    asked,
                    records,
                    self._output,
                    embedder,
                    resumable=resumable,
                    restart=restart,
                    overwrite=overwrite,
                    on_progress=display.update,
                )
                with display:
                    result = await job.run()
                display.summary(self._output, result, model.stats())
        except asyncio.CancelledError:
            if not self._signal:
                raise
            display.interrupted(job.rows if job else 0, resumable)
            return _INTERRUPTED + self._signal
        return 0

    def _catch_signals(self) -> None:
        """Ctrl-C and SIGTERM end the job in order; a second Ctrl-C ends it at once."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop(number: int) -> None:
            self._signal = number
            loop.remove_signal_handler(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows: asyncio's own Ctrl-C
                loop.add_signal_handler(number, stop, number)
