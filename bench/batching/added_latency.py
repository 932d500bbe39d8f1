"""What the engine adds to one client's latency, over the bare backend.

    python -m bench.batching.added_latency ARTIFACT [--threads N] [--rounds N]

One client embeds the same text again and again; between its calls the bare executor
runs the same step. Both share the machine's noise, and the figure is the difference
of the medians. "engine only" is the time of a call outside the backend: tokenizer,
scheduler, event loop and the way to the backend's thread and back.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from array import array
from statistics import median

from runtime_py.artifact import Artifact
from runtime_py.engine import Engine, cost_profile
from runtime_py.executors.base import ExecutorLimits, ModelExecutor, SeqRow, Step
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.info import ModelInfo
from runtime_py.model import Model
from runtime_py.tokenization import HFTokenizer

TEXT = "a volery is a flock of birds in flight, and the large cage that they fly in today"


async def measure(artifact: Artifact, threads: int, rounds: int) -> None:
    limits = ExecutorLimits(max(artifact.manifest.limits.max_tokens, 512), 64, threads, threads)
    executor: ModelExecutor = WasmtimeExecutor.from_weights(
        artifact.program,
        artifact.weights,
        threads=threads,
        max_tokens=limits.max_tokens,
        max_seqs=limits.max_seqs,
        concurrent_steps=threads,
    )
    text = artifact.path("tokenizer.json").read_text(encoding="utf-8")
    tokenizer = HFTokenizer(text, artifact.manifest.limits.max_tokens)
    ids = tokenizer.encode([TEXT])[0].ids
    step = Step(array("i", ids), [SeqRow(0, len(ids))], threads)
    width = artifact.program.output.width
    engine = Engine(executor, width, profile=cost_profile(artifact.program))
    info = ModelInfo("bench", width, False, tokenizer.max_tokens)
    bare, whole, outside = [], [], []
    async with Model(engine, tokenizer, info) as model:
        for _ in range(20):
            executor.run(step)
            await model.embed(TEXT)
        for _ in range(rounds):
            started = time.perf_counter()
            executor.run(step)
            bare.append((time.perf_counter() - started) * 1e3)
            started = time.perf_counter()
            result = await model.embed_with_info(TEXT)
            whole.append((time.perf_counter() - started) * 1e3)
            outside.append(whole[-1] - result.device_ms)
    print(
        f"{threads} thread(s), {len(ids)} tokens: bare {median(bare):.2f} ms, "
        f"embed {median(whole):.2f} ms, added {median(whole) - median(bare):.2f} ms, "
        f"engine only {median(outside):.2f} ms (best {min(outside):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("artifact")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=300)
    args = parser.parse_args()
    artifact = Artifact.open(args.artifact)
    for threads in args.threads:
        asyncio.run(measure(artifact, threads, args.rounds))


if __name__ == "__main__":
    main()
