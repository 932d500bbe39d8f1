"""`ReferenceExecutor`: runs a program op by op in numpy."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from runtime_py.executors.base import ExecutorLimits, SeqStatus, Step, StepResult
from runtime_py.executors.reference.dequantize import dequantize
from runtime_py.executors.reference.ops import OPS, State
from runtime_py.executors.serial import SerialExecutor
from runtime_py.executors.weights import WeightSource
from runtime_py.program import OpKind, Program, Rows, validate

Observer = Callable[[int, Any], None]
"""Called with a linear op's index and its input rows [T, K] before quantization."""

_RANGE_BYTES = 8 << 20
DEFAULT_LIMITS = ExecutorLimits(max_tokens=1 << 17, max_seqs=1 << 12, threads=1, concurrent_steps=1)


class ReferenceExecutor(SerialExecutor):
    """The meaning of a program, computed plainly; the truth that other backends meet."""

    name = "reference"

    def __init__(
        self,
        program: Program,
        tensors: list[Any],
        *,
        dtype: Literal["float64", "float32"] = "float64",
        limits: ExecutorLimits = DEFAULT_LIMITS,
        observer: Observer | None = None,
        quantize_activations: bool = True,
        xp: Any = np,
    ) -> None:
        super().__init__(program, limits)
        self._program = program
        self._xp = xp
        self._dtype = getattr(xp, dtype)
        self._tensors = tensors
        self._observer = observer
        self._quantize_activations = quantize_activations

    @classmethod
    def from_weights(
        cls,
        program: Program,
        weights: WeightSource,
        *,
        dtype: Literal["float64", "float32"] = "float64",
        limits: ExecutorLimits = DEFAULT_LIMITS,
        observer: Observer | None = None,
        quantize_activations: bool = True,
        xp: Any = np,
    ) -> ReferenceExecutor:
        """Dequantize every weight.

        Args:
            dtype: of the weights and of all arithmetic.
            observer: sees the input of every linear op, for calibration.
            quantize_activations: round the inputs of quantized linear ops to int8 as the
                kernels do; False computes what the weights alone lose.
            xp: an array namespace with the array API's names and in-place assignment.

        Raises:
            ArtifactCorrupt: the program breaks a rule, or rows are missing.
            ArtifactMissing: a tensor is not in ``weights``.
        """
        validate(program)
        # Tables are only ever gathered from: f32 holds them exactly and takes half the memory.
        gathered = {
            op.tensor(name)
            for op in program.ops
            if op.kind is OpKind.EMBED
            for name in ("table", "positions")
        }
        tensors = [
            xp.asarray(
                dequantize(
                    t,
                    weights.iter_rows(i, _RANGE_BYTES),
                    np.float32 if i in gathered else np.dtype(dtype),
                )
            )
            for i, t in enumerate(program.tensors)
        ]
        return cls(
            program,
            tensors,
            dtype=dtype,
            limits=limits,
            observer=observer,
            quantize_activations=quantize_activations,
            xp=xp,
        )

    def _execute(self, step: Step) -> StepResult:
        start = time.perf_counter_ns()
        with np.errstate(all="ignore"):  # infinities and NaN are reported by status
            out = self._output(step)
        output = np.ascontiguousarray(out, np.float32)
        rows: memoryview[float] = memoryview(output.data).cast("B").cast("f", output.shape)
        return StepResult(rows, self._statuses(step, output), time.perf_counter_ns() - start)

    def _output(self, step: Step) -> Any:
        xp, program = self._xp, self._program
        positions = np.concatenate(
            [np.arange(r.context_len, r.context_len + r.num_tokens) for r in step.seqs]
        )
        state = State(
            xp,
            self._dtype,
            program,
            self._tensors,
            xp.asarray(np.array(step.token_ids, np.int64)),
            xp.asarray(positions),
            step.seqs,
            self._quantize_activations,
            self._observer,
        )
        rows = {Rows.TOKENS: len(step.token_ids), Rows.SEQS: len(step.seqs)}
        state.slots = [xp.zeros((rows[s.rows], s.width), dtype=self._dtype) for s in program.slots]
        for index, op in enumerate(program.ops):
            state.slots[op.out] = OPS[op.kind](state, op, index)
        return state.slots[program.output_slot]

    def _statuses(self, step: Step, output: np.ndarray[Any, Any]) -> bytes:
        finite = np.isfinite(output).all(axis=1)
        if self._program.output.rows is Rows.TOKENS:
            finite = np.array(
                [finite[r.first_token : r.first_token + r.num_tokens].all() for r in step.seqs]
            )
        return bytes(SeqStatus.OK if ok else SeqStatus.NON_FINITE for ok in finite)

    def _release(self) -> None:
        self._tensors = []
