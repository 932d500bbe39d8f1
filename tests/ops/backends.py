"""The backends that every op case runs on, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from runtime_py.executors.base import ExecutorLimits, ModelExecutor
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.wasmtime import Variant, WasmtimeExecutor
from runtime_py.executors.weights import WeightSource
from runtime_py.program import Program
from tests.ops.cases import StepsCase

Factory = Callable[[Program, WeightSource, int, int], ModelExecutor]
"""(program, weights, max_tokens, max_seqs) -> an executor the caller closes."""


Dtype = Literal["float64", "float32"]


def reference(dtype: Dtype, device: str | None = None) -> Factory:
    def make(program: Program, weights: WeightSource, tokens: int, seqs: int) -> ModelExecutor:
        limits = ExecutorLimits(tokens, seqs, threads=1, concurrent_steps=1)
        return ReferenceExecutor.from_weights(
            program, weights, dtype=dtype, limits=limits, device=device
        )

    return make


def wasmtime(variant: Variant, threads: int = 1) -> Factory:
    def make(program: Program, weights: WeightSource, tokens: int, seqs: int) -> ModelExecutor:
        return WasmtimeExecutor.from_weights(
            program,
            weights,
            variant=variant,
            threads=threads,
            max_tokens=tokens,
            max_seqs=seqs,
        )

    return make


WASMTIME: dict[str, Factory] = {
    "simd": wasmtime("simd"),
    "relaxed": wasmtime("relaxed"),
    "simd-threads": wasmtime("simd-threads", 2),
    "relaxed-threads": wasmtime("relaxed-threads", 2),
}
REFERENCE: dict[str, Factory] = {
    "reference-f64": reference("float64"),
    "reference-f32": reference("float32"),
}
BACKENDS: dict[str, Factory] = {**REFERENCE, **WASMTIME}


StepsFactory = Callable[[StepsCase], ModelExecutor]
"""A decoder's executor, as large as the case's steps need; the caller closes it."""


def reference_steps(dtype: Dtype, device: str | None = None) -> StepsFactory:
    def make(case: StepsCase) -> ModelExecutor:
        return ReferenceExecutor.from_weights(
            case.program,
            case.weights(),
            dtype=dtype,
            limits=case.limits,
            kv_format=case.kv_format,
            device=device,
        )

    return make


def wasmtime_steps(variant: Variant, threads: int = 1) -> StepsFactory:
    def make(case: StepsCase) -> ModelExecutor:
        limits = case.limits
        return WasmtimeExecutor.from_weights(
            case.program,
            case.weights(),
            variant=variant,
            threads=threads,
            max_tokens=limits.max_tokens,
            max_seqs=limits.max_seqs,
            kv_blocks=limits.kv_blocks,
            max_wanted=limits.max_wanted,
            kv_format=case.kv_format,
        )

    return make


WASMTIME_STEPS: dict[str, StepsFactory] = {
    "simd": wasmtime_steps("simd"),
    "relaxed": wasmtime_steps("relaxed"),
    "simd-threads": wasmtime_steps("simd-threads", 2),
    "relaxed-threads": wasmtime_steps("relaxed-threads", 2),
}
STEPS: dict[str, StepsFactory] = {
    "reference-f64": reference_steps("float64"),
    "reference-f32": reference_steps("float32"),
    **WASMTIME_STEPS,
}
