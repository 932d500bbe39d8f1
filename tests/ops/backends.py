"""The backends that every op case runs on, by name."""

from __future__ import annotations

from collections.abc import Callable

from runtime_py.executors.base import ExecutorLimits, ModelExecutor
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.wasmtime import Variant, WasmtimeExecutor
from runtime_py.executors.weights import WeightSource
from runtime_py.program import Program

Factory = Callable[[Program, WeightSource, int, int], ModelExecutor]
"""(program, weights, max_tokens, max_seqs) -> an executor the caller closes."""


def _reference(dtype: str) -> Factory:
    def make(program: Program, weights: WeightSource, tokens: int, seqs: int) -> ModelExecutor:
        limits = ExecutorLimits(tokens, seqs, threads=1, concurrent_steps=1)
        return ReferenceExecutor.from_weights(program, weights, dtype=dtype, limits=limits)

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
BACKENDS: dict[str, Factory] = {
    "reference-f64": _reference("float64"),
    "reference-f32": _reference("float32"),
    **WASMTIME,
}
