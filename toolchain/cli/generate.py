"""``toolchain generate``: prompts become text, many at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolchain.cli.generation_options import (
    FrequencyPenalty,
    MinP,
    PresencePenalty,
    RepetitionPenalty,
    Seed,
    Stop,
    Temperature,
    TopK,
    TopP,
    sampling,
)
from toolchain.cli.loading import (
    DeviceOption,
    Executor,
    ExecutorOption,
    KVFormatOption,
    KVMemory,
    Source,
    Threads,
    load_options,
)


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(generate)


def generate(
    artifact: Source,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts to continue; - is standard input.", show_default=False),
    ] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="A file that holds a prompt. May be repeated."),
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line of the files or the input is a prompt.")
    ] = False,
    chat: Annotated[
        bool, typer.Option("--chat", help="Each prompt is a user's message of a chat.")
    ] = False,
    system: Annotated[
        str | None, typer.Option(help="The system message of these chats.", show_default=False)
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-m", min=1, help="Of a text (if not given: 256)."),
    ] = None,
    temperature: Temperature = 0.0,
    top_k: TopK = 0,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    repetition_penalty: RepetitionPenalty = 1.0,
    presence_penalty: PresencePenalty = 0.0,
    frequency_penalty: FrequencyPenalty = 0.0,
    seed: Seed = None,
    stop: Stop = None,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos", help="The model's own end does not count.")
    ] = False,
    n: Annotated[int, typer.Option("-n", "--n", min=1, help="Texts per prompt.")] = 1,
    logprobs: Annotated[
        int | None,
        typer.Option(help="With --json: log-probabilities, and so many likeliest tokens."),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON object a prompt, with usage and timing.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=4096, help="Most prompts in flight.")
    ] = 256,
    threads: Threads = None,
    executor: ExecutorOption = Executor.auto,
    device: DeviceOption = None,
    kv_format: KVFormatOption = None,
    kv_memory: KVMemory = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Neither progress nor a summary.")
    ] = False,
) -> None:
    """Continue prompts: one streams to the terminal, several run in flight together.

    Texts go to standard output in the order of their prompts, everything else to standard
    error. A prompt that fails does not stop the others; the exit status is then 1.
    """
    from runtime_py.errors import InvalidInput
    from toolchain.cli import interrupt
    from toolchain.cli.generating import Job, run_job

    if logprobs is not None and not json:
        raise InvalidInput("--logprobs is only shown in JSON; add --json")
    if system is not None and not chat:
        raise InvalidInput("--system belongs to a chat; add --chat")
    options = sampling(
        max_tokens,
        temperature,
        top_k,
        top_p,
        min_p,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        seed,
        stop,
    )
    if logprobs is not None:
        options["logprobs"] = logprobs
    if ignore_eos:
        options["ignore_eos"] = True
    job = Job(
        prompts=_prompts(prompts or [], file or [], lines),
        options={**options, "n": n},
        system=system,
        chat=chat,
        json=json,
        quiet=quiet,
        concurrency=concurrency,
    )
    code = interrupt.run(
        run_job(artifact, load_options(executor, threads, device, kv_format, kv_memory), job)
    )
    if code:
        raise typer.Exit(code)


def _prompts(given: list[str], files: list[Path], lines: bool) -> list[str]:
    """Every prompt, in the order of the command line: arguments, then files."""
    from runtime_py.errors import InvalidInput

    if not given and not files:
        if sys.stdin is None or sys.stdin.isatty():
            raise InvalidInput(
                "there is no prompt; give one as an argument, with --file, or on standard input"
            )
        given = ["-"]
    found: list[str] = []
    for text in given:
        found += _split(_stdin(), lines) if text == "-" else [text]
    for path in files:
        found += _split(_stdin() if str(path) == "-" else _read(path), lines)
    if not found:
        raise InvalidInput("the input is empty, expected a prompt")
    return found


def _split(text: str, lines: bool) -> list[str]:
    """The prompts in a file; the end of its last line is not part of one."""
    if lines:
        return [line for line in text.splitlines() if line]
    return [text.removesuffix("\n")]


def _stdin() -> str:
    return _decoded(sys.stdin.buffer.read(), "standard input")


def _read(path: Path) -> str:
    from runtime_py.errors import InvalidInput

    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as e:
        raise InvalidInput(
            f"{path} cannot be read ({e.strerror}), expected a file with a prompt"
        ) from None


def _decoded(data: bytes, name: str) -> str:
    from runtime_py.errors import InvalidInput

    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise InvalidInput(f"{name} is not UTF-8 at byte {e.start}; convert it") from None
