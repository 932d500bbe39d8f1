"""Volery on wasmtime: packed steps of the corpus, side by side on the threads.

python -m bench.encoder.on_wasmtime ARTIFACT SEQUENCES.json THREADS
"""

from __future__ import annotations

import json
import queue
import sys
import time
from array import array
from pathlib import Path

from runtime_py.artifact import Artifact
from runtime_py.executors.base import SeqRow, Step, StepResult
from runtime_py.executors.wasmtime import WasmtimeExecutor

BUDGET = 256


def steps(sequences: list[list[int]]) -> list[Step]:
    """Steps of at most `BUDGET` tokens, in the order of the corpus."""
    result: list[Step] = []
    ids, rows = array("i"), list[SeqRow]()
    for sequence in sequences:
        if rows and len(ids) + len(sequence) > BUDGET:
            result.append(Step(ids, rows))
            ids, rows = array("i"), []
        rows.append(SeqRow(len(ids), len(sequence)))
        ids.extend(sequence)
    return [*result, Step(ids, rows)]


def main() -> None:
    folder, file, threads = sys.argv[1:]
    sequences = json.loads(Path(file).read_text())
    artifact = Artifact.open(folder)
    executor = WasmtimeExecutor.from_weights(
        artifact.program, artifact.weights, threads=int(threads), max_tokens=BUDGET
    )

    def run(plan: list[Step]) -> dict[str, float]:
        done: queue.SimpleQueue[StepResult | BaseException] = queue.SimpleQueue()
        start, cpu = time.perf_counter(), time.process_time()
        for i, step in enumerate(plan):
            if i >= int(threads):
                check(done.get())
            executor.submit(step, done.put)
        for _ in range(min(int(threads), len(plan))):
            check(done.get())
        return {"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}

    def check(result: StepResult | BaseException) -> None:
        if isinstance(result, BaseException):
            raise result

    plan = steps(sequences)
    run(plan[:4])
    first = list(executor.run(steps(sequences[:1])[0]).output.cast("B").cast("f"))
    print(json.dumps({"ready": {"batch": f"{BUDGET} tokens", "first": first}}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run(plan)), flush=True)
    executor.close()


if __name__ == "__main__":
    main()
