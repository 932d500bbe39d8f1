"""Volery on wasmtime: bare steps on one thread, without an engine above.

python -m bench.decoder.on_wasmtime ARTIFACT WORKLOAD.json
"""

from __future__ import annotations

import json
import sys
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime_py.artifact import Artifact
from runtime_py.executors.base import SamplingRow, SeqRow, Step
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.program import KV_BLOCK

_GREEDY = SamplingRow()


@dataclass
class Stream:
    tokens: list[int]
    table: array[int]
    done: int = 0


def start(prompts: list[list[int]]) -> list[Stream]:
    """Streams nothing of which is in the cache."""
    streams, used = [], 0
    for prompt in prompts:
        blocks = -(-(len(prompt) + 64) // KV_BLOCK)
        streams.append(Stream([*prompt], array("i", range(used, used + blocks))))
        used += blocks
    return streams


def run_step(executor: WasmtimeExecutor, streams: list[Stream], chunk: int) -> None:
    """Run the next tokens of every stream; greedy tokens join."""
    ids, seqs, wanted, takers = array("i"), [], [], []
    for stream in streams:
        part = stream.tokens[stream.done : stream.done + chunk]
        seqs.append(SeqRow(len(ids), len(part), stream.done))
        ids.extend(part)
        stream.done += len(part)
        if stream.done == len(stream.tokens):
            wanted.append(len(ids) - 1)
            takers.append(stream)
    tables = [stream.table for stream in streams]
    sampling = [_GREEDY] * len(wanted)
    result = executor.run(Step(ids, seqs, 1, tables, (), wanted, sampling))
    for stream, sampled in zip(takers, result.sampled, strict=True):
        stream.tokens.append(sampled.token_id)


def timed(work: Callable[[], None]) -> dict[str, float]:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}


def main() -> None:
    folder, file = sys.argv[1:]
    given = json.loads(Path(file).read_text())
    chunk, prompts = given["chunk"], given["streams"]
    artifact = Artifact.open(folder)
    executor = WasmtimeExecutor.from_weights(
        artifact.program, artifact.weights, max_tokens=chunk, max_seqs=len(prompts), kv_blocks=64
    )

    def prefill(streams: list[Stream]) -> None:
        for stream in streams:
            end = len(stream.tokens)
            while stream.done < end:
                run_step(executor, [stream], chunk)

    def decode(groups: list[list[Stream]], count: int) -> None:
        for group in groups:
            for _ in range(count):
                run_step(executor, group, chunk)

    def measure(workload: dict[str, Any]) -> dict[str, Any]:
        if workload["prompt"]:
            begun = [given["long"][: workload["prompt"]]]
            streams = start(begun)
            times = timed(lambda: prefill(streams))
        else:
            begun = prompts[: workload["streams"]]
            streams = start(begun)
            prefill(streams)
            groups = [streams] if workload["together"] else [[s] for s in streams]
            times = timed(lambda: decode(groups, workload["tokens"] - 1))
        ids = [s.tokens[len(prompt) :] for s, prompt in zip(streams, begun, strict=True)]
        return {**times, "ids": ids}

    print(json.dumps({"ready": {"variant": executor.variant}}), flush=True)
    for line in sys.stdin:
        print(json.dumps(measure(given["workloads"][json.loads(line)["run"]])), flush=True)
    executor.close()


if __name__ == "__main__":
    main()
