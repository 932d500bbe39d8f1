"""``toolchain bench``: throughput and latency of a model under load, and what its steps cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolchain.cli import interrupt
from toolchain.cli.loading import (
    DeviceOption,
    KVFormatOption,
    KVMemory,
    Source,
    Threads,
    loading,
)

if TYPE_CHECKING:
    from runtime_py import Model
    from runtime_py.artifact import Artifact
    from runtime_py.executors.base import ModelExecutor
    from toolchain.bench import Client, Row
    from toolchain.cli.bench_display import BenchDisplay


class _Executor(StrEnum):
    auto = "auto"
    wasmtime = "wasmtime"
    reference = "reference"
    onnxruntime = "onnxruntime"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(bench)


def bench(
    artifact: Source,
    clients: Annotated[
        list[int] | None,
        typer.Option(
            "--clients",
            "-c",
            min=1,
            max=4096,
            help="Concurrent requests (1 and 8). May be repeated.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", "-s", min=0.01, help="How long each row is measured.")
    ] = 5.0,
    warmup: Annotated[
        int, typer.Option(min=0, help="Requests of each client that do not count.")
    ] = 1,
    prompt_tokens: Annotated[
        int | None, typer.Option(min=1, help="Of a prompt (128), or of a text to embed (24).")
    ] = None,
    output_tokens: Annotated[int, typer.Option(min=1, help="Decoders: tokens of an answer.")] = 64,
    shared_prefix: Annotated[
        int, typer.Option(min=0, help="Decoders: leading tokens that all prompts share.")
    ] = 0,
    temperature: Annotated[float, typer.Option(min=0.0, help="Decoders: of the sampling.")] = 0.0,
    texts: Annotated[int, typer.Option(min=1, help="Encoders: texts of a request.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of prompts and texts.")] = 0,
    executor: Annotated[_Executor, typer.Option(help="The backend.")] = _Executor.auto,
    device: DeviceOption = None,
    onnx: Annotated[
        Path | None, typer.Option(help="Graph for onnxruntime (if not given: what export kept).")
    ] = None,
    threads: Threads = None,
    max_seqs: Annotated[int | None, typer.Option(min=1, help="Most sequences in a step.")] = None,
    kv_format: KVFormatOption = None,
    kv_memory: KVMemory = None,
    profile: Annotated[
        Path | None,
        typer.Option(help="Also measure what steps cost, and write it here for `simulate`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Measure a model under load: a fixed number of clients, each with one request at a time.

    A row begins when every client is warm. Decoders answer random prompts, all different;
    encoders embed stretches of English.
    """
    from toolchain.bench.load import BenchOptions

    options = BenchOptions(
        executor.value,
        threads,
        device.value if device else None,
        onnx,
        max_seqs,
        kv_format.value if kv_format else None,
        kv_memory << 20 if kv_memory else None,
    )
    load = {
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "shared_prefix": shared_prefix,
        "temperature": temperature,
        "texts": texts,
        "seed": seed,
    }
    run = _Run(options, load, clients or [1, 8], seconds, warmup, profile, as_json, quiet)
    code = interrupt.run(run(artifact))
    if code:
        raise typer.Exit(code)


class _Run:
    """The measurements, one after the other."""

    def __init__(
        self,
        options: Any,
        load: dict[str, Any],
        clients: list[int],
        seconds: float,
        warmup: int,
        profile: Path | None,
        as_json: bool,
        quiet: bool,
    ) -> None:
        self._options, self._load, self._clients = options, load, clients
        self._seconds, self._warmup = seconds, warmup
        self._profile, self._json, self._quiet = profile, as_json, quiet

    async def __call__(self, source: str) -> int:
        from runtime_py.download import fetch, is_url
        from toolchain.bench.load import facts, open_executor, open_model
        from toolchain.cli.bench_display import BenchDisplay, show

        def opened(check: Callable[[], None]) -> tuple[Artifact, ModelExecutor]:
            def progress(here: int, total: int) -> None:
                check()
                shown["progress"](here, total)

            folder = fetch(source, progress=progress) if is_url(source) else Path(source)
            check()
            return open_executor(folder, self._options)

        with loading(source, quiet=self._quiet) as shown:
            artifact, executor = await interrupt.in_thread(opened)
        report: dict[str, Any] = {
            "format": "volery-bench",
            "version": 1,
            **facts(artifact.manifest, executor, self._options.threads),
        }
        with BenchDisplay(quiet=self._quiet) as display:
            try:
                if self._profile is not None:
                    await self._write_profile(artifact, executor, display)
                model = await open_model(artifact, executor)
            except BaseException:
                executor.close()
                raise
            async with model:
                client, used = await self._client(model)
                rows = [await self._row(model, client, n, display) for n in self._clients]
        report |= {**used, "seconds": self._seconds, "rows": [row.to_plain() for row in rows]}
        if self._json:
            typer.echo(json.dumps(report, ensure_ascii=False, indent=1))
        else:
            show(report, rows)
            if self._profile is not None:
                typer.echo(f"profile: {self._profile}")
        return 0

    async def _write_profile(
        self, artifact: Artifact, executor: ModelExecutor, display: BenchDisplay
    ) -> None:
        from runtime_py.errors import InvalidInput
        from toolchain.bench import measure_profile

        assert self._profile is not None
        manifest = artifact.manifest
        generation = manifest.generation

        def measure(check: Callable[[], None]) -> dict[str, Any]:
            def progress(share: float) -> None:
                check()
                display.update("profile", share)

            return measure_profile(
                executor,
                model=manifest.model.id.rsplit("/", 1)[-1],
                vocab_size=manifest.limits.vocab_size,
                max_tokens=generation.max_context if generation else manifest.limits.max_tokens,
                progress=progress,
            )

        measured = await interrupt.in_thread(measure)
        try:
            self._profile.write_text(json.dumps(measured, indent=1) + "\n", "utf-8")
        except OSError as e:
            raise InvalidInput(f"{self._profile} cannot be written ({e.strerror})") from None

    async def _client(self, model: Model) -> tuple[Client, dict[str, Any]]:
        """The client, and what the report says about its requests."""
        from runtime_py.errors import InvalidInput
        from toolchain.bench import DecoderClient, EncoderClient

        load, info = self._load, model.info
        if not info.max_context:
            tokens = load["prompt_tokens"] or 24
            encoder = await EncoderClient.make(
                model, tokens=tokens, per_request=load["texts"], seed=load["seed"]
            )
            return encoder, {"prompt_tokens": tokens, "texts": load["texts"]}
        prompt, output = load["prompt_tokens"] or 128, load["output_tokens"]
        if prompt + output > info.max_context:
            raise InvalidInput(
                f"a prompt of {prompt} tokens and an answer of {output} do not fit the context "
                f"of {info.max_context}; lower --prompt-tokens or --output-tokens"
            )
        if load["shared_prefix"] > prompt:
            raise InvalidInput(
                f"--shared-prefix is {load['shared_prefix']}, expected at most the {prompt} "
                "tokens of a prompt"
            )
        decoder = DecoderClient(
            model,
            prompt_tokens=prompt,
            output_tokens=output,
            shared_prefix=load["shared_prefix"],
            temperature=load["temperature"],
            seed=load["seed"],
        )
        used = {"prompt_tokens": prompt, "output_tokens": output}
        return decoder, {**used, "shared_prefix": load["shared_prefix"]}

    async def _row(self, model: Model, client: Client, clients: int, display: BenchDisplay) -> Row:
        from toolchain.bench import measure

        label = f"{clients} client{'s' * (clients > 1)}"
        display.update(label, 0.0)
        return await measure(
            model,
            client,
            clients,
            seconds=self._seconds,
            warmup=self._warmup,
            progress=lambda share: display.update(label, share),
        )
