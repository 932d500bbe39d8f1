"""Everything about a quantized encoder that has to be measured before it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.executors.weights import MemoryWeights
from toolchain.pack.cost_profile import measure as measure_cost
from toolchain.quantize import QuantizedModel, Scheme
from toolchain.verify.backends import reference_executor, wasm_executor
from toolchain.verify.numerics import NumericsReport, compare
from toolchain.verify.steps import run_all


@dataclass(frozen=True, slots=True)
class Measured:
    """``cost_profile`` is None where the wasm backend cannot run."""

    numerics: NumericsReport
    cost_profile: Mapping[str, Any] | None


def measure_model(
    model: QuantizedModel,
    scheme: Scheme,
    token_ids: Sequence[Sequence[int]],
    expected: npt.NDArray[np.float64],
) -> Measured:
    """Run the texts on the wasm backend (or the reference) and compare with ``expected``.

    Raises:
        NonFinite: a text overflows.
    """
    program, weights = model.program, memory_weights(model)
    wasm = wasm_executor(program, weights)
    executor = wasm or reference_executor(program, weights)
    try:
        found = run_all(executor, program.output.width, token_ids)
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
