"""Runs the prompts of `toolchain generate` and prints what they give."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console

import runtime_py as rt
from runtime_py.generation.stream import GenerationStream
from toolchain.cli.loading import loading
from toolchain.cli.terminal import Writer, visible

_MAX_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Job:
    """What the command line asked for.

    Attributes:
        options: keyword arguments of `Model.generate`.
        chat: prompts are user messages, behind ``system`` if there is one.
        concurrency: most prompts in flight.
    """

    prompts: Sequence[str]
    options: Mapping[str, Any]
    system: str | None
    chat: bool
    json: bool
    quiet: bool
    concurrency: int


@dataclass(frozen=True, slots=True)
class Done:
    """A prompt that was answered, with the seconds that this took."""

    result: rt.GenerateResult
    seconds: float


async def run_job(source: str, options: Mapping[str, Any], job: Job) -> int:
    """Load the model and run the job; the command's exit status."""
    with loading(source, quiet=job.quiet) as progress:
        model = await rt.load(source, **options, **progress)
    async with model:
        run = _Run(model, job)
        try:
            if len(job.prompts) == 1 and job.options["n"] == 1 and not job.json:
                await run.stream()
                return 0
            return await run.all()
        except BrokenPipeError:
            return run.reader_left()
        finally:
            run.writer.end_line()


class _Run:
    def __init__(self, model: rt.Model, job: Job) -> None:
        self.writer = Writer()
        self._model, self._job = model, job
        self._console = Console(stderr=True, highlight=False)
        self._traffic = "latency" if len(job.prompts) == 1 else "throughput"

    def reader_left(self) -> int:
        """Whoever read standard output has gone, as `head` does: no error to speak of."""
        self.writer = Writer(open("/dev/null", "w"))  # noqa: SIM115
        return 0

    def _start(self, prompt: str) -> GenerationStream:
        options: dict[str, Any] = {**self._job.options, "traffic": self._traffic}
        options.setdefault("max_tokens", min(_MAX_TOKENS, self._model.info.max_context))
        if not self._job.chat:
            return self._model.generate(prompt, **options)
        messages = [{"role": "user", "content": prompt}]
        if self._job.system is not None:
            messages.insert(0, {"role": "system", "content": self._job.system})
        return self._model.chat(messages, **options)

    async def stream(self) -> None:
        """One text, as it comes."""
        started = time.monotonic()
        async with self._start(self._job.prompts[0]) as stream:
            async for piece in stream:
                self.writer.write(piece.text)
            result = await stream
        self.writer.end_line()
        self._say(_summary([Done(result, time.monotonic() - started)], time.monotonic() - started))

    async def all(self) -> int:
        """Every prompt, in flight together, printed in order."""
        started = time.monotonic()
        room = asyncio.Semaphore(self._job.concurrency)
        tasks = [asyncio.ensure_future(self._one(room, p)) for p in self._job.prompts]
        done, failed = list[Done](), 0
        try:
            for index, task in enumerate(tasks):
                try:
                    done.append(await task)
                except rt.VoleryError as e:
                    failed += 1
                    self._print_error(index, e)
                else:
                    self._print(index, done[-1])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if done:
            self._say(_summary(done, time.monotonic() - started))
        return 1 if failed else 0

    async def _one(self, room: asyncio.Semaphore, prompt: str) -> Done:
        async with room:
            started = time.monotonic()
            result = await self._start(prompt)
            return Done(result, time.monotonic() - started)

    def _print(self, index: int, done: Done) -> None:
        if self._job.json:
            record = as_json(index, self._job.prompts[index], done)
            self.writer.line(json.dumps(record, ensure_ascii=False))
            return
        for sample, completion in enumerate(done.result.completions):
            self._heading(index, sample)
            self.writer.write(completion.text)
            self.writer.end_line()

    def _heading(self, index: int, sample: int) -> None:
        number = f"{index + 1}.{sample + 1}" if self._job.options["n"] > 1 else f"{index + 1}"
        prompt = " ".join(self._job.prompts[index].split())
        short = prompt if len(prompt) <= 60 else prompt[:59] + "…"
        self.writer.line(f"[{number}] {short}")

    def _print_error(self, index: int, error: rt.VoleryError) -> None:
        message = " ".join(str(error).splitlines())
        if self._job.json:
            kind = type(error).__name__
            record = {"index": index, "error": {"type": kind, "message": message}}
            self.writer.line(json.dumps(record, ensure_ascii=False))
        which = f"prompt {index + 1}: " if len(self._job.prompts) > 1 else ""
        self._console.print(f"error: {which}{visible(message)}", markup=False, soft_wrap=True)

    def _say(self, line: str) -> None:
        if not self._job.quiet:
            self._console.print(line, style="dim", markup=False, soft_wrap=True)


def as_json(index: int, prompt: str, done: Done) -> dict[str, Any]:
    """What ``--json`` prints for a prompt."""
    result, usage = done.result, done.result.usage
    return {
        "index": index,
        "prompt": prompt,
        "completions": [
            {
                "text": c.text,
                "token_ids": c.token_ids,
                "finish_reason": c.finish_reason,
                **({"logprobs": c.logprobs} if c.logprobs is not None else {}),
                "tpot_ms": round(c.tpot_ms, 3),
            }
            for c in result.completions
        ],
        "usage": {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.completion_tokens,
        },
        "timing": {
            "queue_ms": round(result.queue_ms, 3),
            "ttft_ms": round(result.ttft_ms, 3),
            "total_ms": round(done.seconds * 1e3, 3),
            "tokens_per_s": round(usage.completion_tokens / max(done.seconds, 1e-9), 2),
        },
        "seed": result.seed,
    }


def _summary(done: Sequence[Done], seconds: float) -> str:
    """One line about what was read and written, and how fast."""
    usages = [d.result.usage for d in done]
    prompt, cached, new = (
        sum(getattr(u, name) for u in usages)
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
    )
    known = f" ({cached:,} cached)" if cached else ""
    first = sorted(d.result.ttft_ms for d in done)[len(done) // 2]
    count = f"{len(done):,} prompts, " if len(done) > 1 else ""
    return (
        f"{count}{prompt:,} prompt tokens{known}, {new:,} new in {seconds:.2f} s: "
        f"first after {first:,.0f} ms, {new / max(seconds, 1e-9):,.1f} tokens/s"
    )
