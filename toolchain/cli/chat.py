"""``toolchain chat``: a conversation in the terminal."""

from __future__ import annotations

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
    loading,
)

_MAX_TOKENS = 512


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(chat)


def chat(
    artifact: Source,
    once: Annotated[
        str | None, typer.Option(help="Answer this message and exit.", show_default=False)
    ] = None,
    system: Annotated[
        str | None, typer.Option(help="The system message.", show_default=False)
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-m", min=1, help="Of an answer (if not given: 512)."),
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
    threads: Threads = None,
    executor: ExecutorOption = Executor.auto,
    device: DeviceOption = None,
    kv_format: KVFormatOption = None,
    kv_memory: KVMemory = None,
) -> None:
    """Talk to a model. Answers stream; /help lists the commands; Ctrl-C stops an answer.

    Without a terminal every line of standard input is a message, and only the answers are
    written to standard output.
    """
    import runtime_py as rt
    from runtime_py.errors import InvalidInput
    from toolchain.cli.chat_loop import ChatLoop
    from toolchain.cli.chat_session import ChatSession

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
    with loading(artifact) as progress:
        model = rt.load_sync(
            artifact,
            **load_options(executor, threads, device, kv_format, kv_memory),
            **progress,
        )
    with model:
        if not model.info.chat:
            raise InvalidInput(
                f"{model.info.id} has no chat template; use `toolchain generate` with a prompt"
            )
        options.setdefault("max_tokens", min(_MAX_TOKENS, model.info.max_context))
        loop = ChatLoop(model, ChatSession(model.info, options, system=system))
        code = loop.answer(once) if once is not None else loop.run()
    if code:
        raise typer.Exit(code)
