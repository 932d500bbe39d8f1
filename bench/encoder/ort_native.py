"""ONNX Runtime's dynamic int8 on one thread, at its best batch size.

python -m bench.encoder.ort_native MODEL.onnx SEQUENCES.json
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

BATCH_SIZES = (1, 4, 8, 16, 32, 64)
Batch = dict[str, npt.NDArray[np.int64]]


def batches(sequences: list[list[int]], size: int, names: list[str]) -> list[Batch]:
    """Batches of texts of like length, padded to the longest."""
    order = sorted(sequences, key=len)
    result = []
    for at in range(0, len(order), size):
        rows = order[at : at + size]
        ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        mask = np.zeros_like(ids)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        feeds = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
        }
        result.append({name: feeds[name] for name in names})
    return result


def embed(session: ort.InferenceSession, batch: Batch) -> npt.NDArray[np.float32]:
    """Mean pooling and normalization, as the model's pipeline has them."""
    (hidden,) = session.run(None, batch)
    mask = batch["attention_mask"][:, :, None].astype(np.float32)
    mean = (hidden * mask).sum(1) / mask.sum(1)
    return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True), np.float32)


def main() -> None:
    model, file = sys.argv[1:]
    sequences = json.loads(Path(file).read_text())
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]

    def run(plan: list[Batch]) -> dict[str, float]:
        start, cpu = time.perf_counter(), time.process_time()
        for batch in plan:
            embed(session, batch)
        return {"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - cpu}

    # Its speed per batch size, on a sample that has every length.
    sample = sorted(sequences, key=len)[::4]
    run(batches(sample, 8, names))
    best = min(BATCH_SIZES, key=lambda size: run(batches(sample, size, names))["cpu_s"])
    plan = batches(sequences, best, names)
    first = embed(session, batches(sequences[:1], 1, names)[0])[0]
    ready = {"batch": f"{best} texts", "first": first.tolist()}
    print(json.dumps({"ready": ready}), flush=True)
    for _ in sys.stdin:
        print(json.dumps(run(plan)), flush=True)


if __name__ == "__main__":
    main()
