"""The service under BentoML: its dispatcher batches, our runtime computes.

    VOLERY_ARTIFACT=... VOLERY_SLO_MS=... bentoml serve bench.batching.bentoml_service:Embedder

A batch is one step of the packed runtime, on one thread: no padding, and nothing of our own
scheduler. So the two servers differ in nothing but who decides about batches.
"""

from __future__ import annotations

import os
from array import array

import bentoml

from runtime_py.artifact import Artifact
from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.tokenization import HFTokenizer

SLO_MS = int(os.environ.get("VOLERY_SLO_MS", "250"))
MAX_BATCH = int(os.environ.get("VOLERY_MAX_BATCH", "32"))


@bentoml.service(workers=1, traffic={"timeout": 60, "max_concurrency": 100_000})
class Embedder:
    """Texts in, vectors out."""

    def __init__(self) -> None:
        artifact = Artifact.open(os.environ["VOLERY_ARTIFACT"])
        limit = artifact.manifest.limits.max_tokens
        text = artifact.path("tokenizer.json").read_text(encoding="utf-8")
        self.tokenizer = HFTokenizer(text, limit)
        self.executor = WasmtimeExecutor.from_weights(
            artifact.program,
            artifact.weights,
            threads=1,
            max_tokens=MAX_BATCH * limit,
            max_seqs=MAX_BATCH,
        )

    @bentoml.api(batchable=True, max_batch_size=MAX_BATCH, max_latency_ms=SLO_MS)
    def embed(self, texts: list[str]) -> list[list[float]]:
        """One vector per text."""
        ids, rows = array("i"), []
        for encoding in self.tokenizer.encode(texts):
            rows.append(SeqRow(len(ids), len(encoding.ids)))
            ids.extend(encoding.ids)
        result = self.executor.run(Step(ids, rows))
        width = len(result.output) // len(rows) if result.output.ndim == 1 else None
        if width is None:
            return result.output.tolist()
        values = result.output.tolist()
        return [values[i * width : (i + 1) * width] for i in range(len(rows))]
