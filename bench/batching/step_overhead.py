"""What the engine adds to every step of a decoder: 32 streams, one token each a step.

    python -m bench.batching.step_overhead [ARTIFACT] [--seqs N] [--steps N]

A step's overhead is the time between two of its kind minus the time inside the backend
(`StepResult.device_ns`): the scheduler, block tables, sampling rows, the copy into wasm
memory, the way to the backend's thread and back, and tokens to their streams. Without an
artifact a tiny decoder with random weights runs, whose kernels leave the caches warm.
Prints quantiles over the steps that carried every stream.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable

from runtime_py.executors.base import ExecutorLimits, ModelExecutor, Step, StepResult
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.generation.options import GenerateOptions, generate_options

PROMPT = [7, 5, 3, 11, 13]


class Stopwatch:
    """A `ModelExecutor` that notes when a step is submitted and how long it ran inside."""

    def __init__(self, inner: ModelExecutor) -> None:
        self.inner = inner
        self.marks: list[tuple[int, int, int]] = []  # submitted at, sequences, device ns

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def limits(self) -> ExecutorLimits:
        return self.inner.limits

    def run(self, step: Step) -> StepResult:
        return self.inner.run(step)

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        at = time.perf_counter_ns()
        rows = len(step.seqs) if len(step.token_ids) == len(step.seqs) else 0

        def note(result: StepResult | BaseException) -> None:
            if isinstance(result, StepResult):
                self.marks.append((at, rows, result.device_ns))
            done(result)

        self.inner.submit(step, note)

    def close(self) -> None:
        self.inner.close()

    def overheads(self, seqs: int) -> list[float]:
        """Microseconds outside the backend, of steps with ``seqs`` streams and nothing else."""
        found = []
        for (at, rows, device_ns), (after, _, _) in zip(self.marks, self.marks[1:], strict=False):
            if rows == seqs:
                found.append((after - at - device_ns) / 1e3)
        return found


def tiny(seqs: int) -> tuple[ModelExecutor, int]:
    """A small decoder with random weights, and its vocabulary."""
    from runtime_py.program import TensorFormat
    from tests.ops.cases.decoder import decoder
    from tests.ops.cases.encoder import weights_of

    program, parts = decoder(TensorFormat.F32)
    executor = WasmtimeExecutor.from_weights(
        program, weights_of(program, parts), max_tokens=256, max_seqs=seqs, kv_blocks=16 * seqs
    )
    return executor, program.vocab_size


def loaded(path: str, seqs: int, threads: int) -> tuple[ModelExecutor, int]:
    """An artifact's decoder on wasmtime, and its vocabulary."""
    from runtime_py.artifact import Artifact

    artifact = Artifact.open(path)
    executor = WasmtimeExecutor.from_weights(
        artifact.program,
        artifact.weights,
        threads=threads,
        max_tokens=256,
        max_seqs=seqs,
        kv_blocks=16 * seqs,
    )
    return executor, artifact.program.vocab_size


async def measure(watch: Stopwatch, seqs: int, steps: int, options: GenerateOptions) -> None:
    """Run ``seqs`` streams, each read by a task of its own, through ``steps`` steps."""
    from runtime_py.engine import Engine
    from runtime_py.generation.stream import GenerationStream

    engine = Engine(watch, 0, max_context=400)

    async def read(i: int) -> None:
        stream = GenerationStream(
            engine,
            lambda: engine.generate([*PROMPT, i], options, (), lambda ids: "x" * len(ids)),
        )
        async for _ in stream:
            pass

    for _ in range(max(steps // options.max_tokens, 1)):
        await asyncio.gather(*[read(i) for i in range(seqs)])
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact", nargs="?")
    parser.add_argument("--seqs", type=int, default=32)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--temperature", type=float, default=0.0)
    args = parser.parse_args()
    executor, vocab_size = (
        loaded(args.artifact, args.seqs, args.threads) if args.artifact else tiny(args.seqs)
    )
    options = generate_options(
        vocab_size=vocab_size,
        max_context=400,
        max_tokens=min(args.steps, 300),
        temperature=args.temperature,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        repetition_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        logit_bias=None,
        logits_mask=None,
        logprobs=False,
        n=1,
        seed=1,
        stop=None,
        stop_token_ids=(),
        ignore_eos=True,
    )
    watch = Stopwatch(executor)
    asyncio.run(measure(watch, args.seqs, args.steps, options))
    us = watch.overheads(args.seqs)
    low, middle, high = statistics.quantiles(us, n=4)
    device = statistics.median([ns / 1e3 for _, rows, ns in watch.marks if rows == args.seqs])
    print(
        f"{len(us)} steps of {args.seqs} streams, {device:.0f} us in the backend; outside it "
        f"best {min(us):.0f} us, quartiles {low:.0f} {middle:.0f} {high:.0f} us"
    )


if __name__ == "__main__":
    main()
