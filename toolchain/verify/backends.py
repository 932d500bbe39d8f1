"""The backends that this machine can run."""

from __future__ import annotations

from runtime_py.errors import ArtifactMissing
from runtime_py.executors.base import ExecutorLimits, ModelExecutor
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import WeightSource
from runtime_py.program import Program
from toolchain.verify.steps import STEP_TOKENS

_MAX_SEQS = 256
_DECODER_LIMITS = ExecutorLimits(512, 32, 1, 1, kv_blocks=96, max_wanted=128)
"""Room for what is measured here: 3,072 tokens of context, chunks of prompts."""


def executor_limits(program: Program) -> ExecutorLimits:
    """What a step must be able to hold: the longest text, or a packed step."""
    if program.is_decoder:
        return _DECODER_LIMITS
    tokens = max(STEP_TOKENS, program.max_positions or 8192)
    return ExecutorLimits(tokens, _MAX_SEQS, threads=1, concurrent_steps=1)


def wasm_executor(program: Program, weights: WeightSource) -> ModelExecutor | None:
    """The wasmtime executor on one thread; None where it, or its module, is missing."""
    try:
        from runtime_py.executors.wasmtime import WasmtimeExecutor
    except ImportError:
        return None
    limits = executor_limits(program)
    try:
        return WasmtimeExecutor.from_weights(
            program,
            weights,
            threads=1,
            max_tokens=limits.max_tokens,
            max_seqs=limits.max_seqs,
            kv_blocks=limits.kv_blocks,
            max_wanted=limits.max_wanted,
        )
    except ArtifactMissing:
        return None


def reference_executor(program: Program, weights: WeightSource) -> ModelExecutor:
    """The numpy reference in float32, for corpora; `ReferenceExecutor` itself is float64."""
    limits = executor_limits(program)
    return ReferenceExecutor.from_weights(program, weights, dtype="float32", limits=limits)
