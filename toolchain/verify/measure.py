"""Everything about a quantized model that has to be measured before it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runtime_py.executors.weights import MemoryWeights
from toolchain.pack.cost_profile import measure as measure_cost
from toolchain.quantize import QuantizedModel, Scheme
from toolchain.sources.pipeline import EmbeddingPipeline
from toolchain.verify.backends import reference_executor, wasm_executor
from toolchain.verify.numerics import NumericsReport, compare
from toolchain.verify.oracle import graph_embeddings
from toolchain.verify.steps import run_all

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """``cost_profile`` is None where the wasm backend cannot run."""

    numerics: NumericsReport
    cost_profile: Mapping[str, Any] | None


def measure_model(
    model: QuantizedModel,
    scheme: Scheme,
    onnx_path: Path,
    pipeline: EmbeddingPipeline,
    token_ids: Sequence[Sequence[int]],
    progress: Progress,
) -> Measured:
    """Run the evaluation texts on the wasm backend (or the reference) and on the f32 graph.

    Raises:
        NonFinite: a text overflows.
    """
    program, weights = model.program, memory_weights(model)
    expected = graph_embeddings(onnx_path, pipeline, program, token_ids)
    progress(0.6)
    wasm = wasm_executor(program, weights)
    executor = wasm or reference_executor(program, weights)
    try:
        found = run_all(executor, program.output.width, token_ids)
        progress(0.9)
        longest = max(map(len, token_ids))
        profile = measure_cost(executor, longest, program.vocab_size) if wasm else None
    finally:
        executor.close()
    numerics = compare(found, expected, backend=executor.name, gate=scheme.gate)
    return Measured(numerics, profile)


def memory_weights(model: QuantizedModel) -> MemoryWeights:
    """The model's parts as a `WeightSource`."""
    return MemoryWeights(
        model.program,
        {
            name: np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            for name, part in model.parts.items()
        },
    )
