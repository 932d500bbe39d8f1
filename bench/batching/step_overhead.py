"""What the engine adds to every step of a decoder: 32 streams, one token each a step.

    python -m bench.batching.step_overhead [ARTIFACT] [--seqs N] [--steps N]

In microseconds a step, each as the best and the quartiles over the steps that carried
every stream:

    whole     from the end of one step to the end of the next, less the time inside wasm
    loop      of that, CPU time of the event loop until the next step is handed over: the
              scheduler, tokens to their streams, block tables, sampling rows, `submit`
    backend   of that, time around the call into wasm: the copy of the step into wasm
              memory and of the sampled tokens out of it
    delivery  CPU time of the event loop after that: waking those who read the tokens
    readers   CPU time of the tasks that turn tokens into text, on average

The last two run while the next step is inside wasm. What is left of the whole is the way
to the backend's thread and back. Without an artifact
a tiny decoder with random weights runs, whose kernels leave the caches warm.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import time
from collections.abc import Callable

from runtime_py.engine import Device, Engine
from runtime_py.executors.base import ExecutorLimits, ModelExecutor, Step, StepResult
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.generation.options import GenerateOptions, generate_options
from runtime_py.generation.stream import GenerationStream

PROMPT = [7, 5, 3, 11, 13]


class Stopwatch:
    """A `ModelExecutor` that notes when its steps end.

    Attributes:
        ends: (streams, moment, nanoseconds inside wasm) of every step.
        full: the last step that only had streams.
        handed_over: CPU time of the submitting thread when it had submitted the last step.
    """

    def __init__(self, inner: ModelExecutor) -> None:
        self.inner = inner
        self.ends: list[tuple[int, int, int]] = []
        self.full: Step | None = None
        self.handed_over = 0

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def limits(self) -> ExecutorLimits:
        return self.inner.limits

    def run(self, step: Step) -> StepResult:
        return self.inner.run(step)

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        def note(result: StepResult | BaseException) -> None:
            if isinstance(result, StepResult):
                self.ends.append((_streams(step), time.perf_counter_ns(), result.device_ns))
            done(result)

        if _streams(step) == self.limits.max_seqs:
            self.full = step
        self.inner.submit(step, note)
        self.handed_over = time.thread_time_ns()

    def close(self) -> None:
        """The benchmark closes the executor, when it has timed `around`."""

    def whole(self, seqs: int) -> list[int]:
        """Nanoseconds between the ends of two steps of ``seqs`` streams, less those in wasm."""
        return [
            after - before - inside
            for (first, before, _), (second, after, inside) in itertools.pairwise(self.ends)
            if first == second == seqs
        ]

    def around(self, repeats: int = 300) -> list[int]:
        """Nanoseconds outside wasm of the last full step, run again and again."""
        assert self.full is not None
        times = []
        for _ in range(repeats):
            started = time.perf_counter_ns()
            result = self.inner.run(self.full)
            times.append(time.perf_counter_ns() - started - result.device_ns)
        return times


class TimedDevice(Device):
    """The driver, with a stopwatch on what a step's end sets off.

    Attributes:
        loop_ns, delivery_ns: CPU time of the loop for each step that follows another, until
            it was handed over and after that.
    """

    def __init__(self, watch: Stopwatch) -> None:
        super().__init__()
        self.loop_ns: list[int] = []
        self.delivery_ns: list[int] = []
        self._watch = watch

    def _completed(self, step_id: int, result: StepResult | BaseException) -> None:
        started = time.thread_time_ns()
        super()._completed(step_id, result)
        handed_over, ended = self._watch.handed_over, time.thread_time_ns()
        if handed_over > started:
            self.loop_ns.append(handed_over - started)
            self.delivery_ns.append(ended - handed_over)


def _streams(step: Step) -> int:
    """Sequences of a step that only has streams; 0 of one with prompts."""
    return len(step.seqs) if len(step.token_ids) == len(step.seqs) else 0


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


async def measure(
    watch: Stopwatch, seqs: int, steps: int, options: GenerateOptions
) -> tuple[list[int], list[int], float]:
    """Run ``seqs`` streams, each read by a task of its own, through ``steps`` steps.

    Returns:
        nanoseconds of the loop and of delivery for each step, and of the readers per step.
    """
    device = TimedDevice(watch)
    engine = Engine(watch, 0, max_context=400, device=device)

    async def read(i: int) -> None:
        stream = GenerationStream(
            engine,
            lambda: engine.generate([*PROMPT, i], options, (), lambda ids: "x" * len(ids)),
        )
        async for _ in stream:
            pass

    started = time.thread_time_ns()
    for _ in range(max(steps // options.max_tokens, 1)):
        await asyncio.gather(*[read(i) for i in range(seqs)])
    spent = time.thread_time_ns() - started - sum(device.loop_ns) - sum(device.delivery_ns)
    await engine.close()
    return device.loop_ns, device.delivery_ns, spent / len(watch.ends)


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
        seed=1,
        ignore_eos=True,
    )
    watch = Stopwatch(executor)
    loop_ns, delivery_ns, readers_ns = asyncio.run(measure(watch, args.seqs, args.steps, options))
    whole, around = watch.whole(args.seqs), watch.around()
    executor.close()
    wasm_us = statistics.median([ns for _, _, ns in watch.ends]) / 1e3
    print(f"{len(whole)} steps of {args.seqs} streams, {wasm_us:.0f} us in wasm")
    for name, values in (
        ("whole", whole),
        ("loop", loop_ns),
        ("backend", around),
        ("delivery", delivery_ns),
    ):
        low, middle, high = (q / 1e3 for q in statistics.quantiles(values, n=4))
        best = min(values) / 1e3
        print(f"{name:<9}best {best:.0f} us, quartiles {low:.0f} {middle:.0f} {high:.0f} us")
    print(f"readers  {readers_ns / 1e3:.0f} us on average")


if __name__ == "__main__":
    main()
