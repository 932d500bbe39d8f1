"""`ReferenceExecutor`: runs a program op by op in numpy or torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from runtime_py.errors import InvalidInput
from runtime_py.executors.base import (
    ExecutorLimits,
    KVFormat,
    Sampled,
    SeqStatus,
    Step,
    StepResult,
)
from runtime_py.executors.reference.cache import PagedCache
from runtime_py.executors.reference.dequantize import BLOCK_FORMATS, dequantize
from runtime_py.executors.reference.namespace import TorchNamespace, to_numpy
from runtime_py.executors.reference.ops import OPS
from runtime_py.executors.reference.sampling import sample
from runtime_py.executors.reference.state import State
from runtime_py.executors.serial import SerialExecutor
from runtime_py.executors.weights import WeightSource
from runtime_py.program import OpKind, Program, Rows, validate

Observer = Callable[[int, Any], None]
"""Called with a linear op's index and its input rows [T, K] before quantization."""

_RANGE_BYTES = 8 << 20
DEFAULT_LIMITS = ExecutorLimits(max_tokens=1 << 17, max_seqs=1 << 12, threads=1, concurrent_steps=1)
DECODER_LIMITS = ExecutorLimits(
    max_tokens=4096, max_seqs=128, threads=1, concurrent_steps=1, kv_blocks=128, max_wanted=4096
)


class ReferenceExecutor(SerialExecutor):
    """The meaning of a program, computed plainly; the truth that other backends meet."""

    name = "reference"

    def __init__(
        self,
        program: Program,
        tensors: list[Any],
        *,
        dtype: Literal["float64", "float32"],
        limits: ExecutorLimits,
        observer: Observer | None,
        quantize_activations: bool,
        kv_format: KVFormat,
        xp: Any,
    ) -> None:
        super().__init__(program, limits)
        self._program = program
        self._xp = xp
        self._dtype = getattr(xp, dtype)
        self._tensors = tensors
        self._observer = observer
        self._quantize_activations = quantize_activations
        self._cache = (
            PagedCache(xp, self._dtype, program, limits.kv_blocks, kv_format)
            if program.is_decoder
            else None
        )

    @classmethod
    def from_weights(
        cls,
        program: Program,
        weights: WeightSource,
        *,
        dtype: Literal["float64", "float32"] = "float64",
        limits: ExecutorLimits | None = None,
        observer: Observer | None = None,
        quantize_activations: bool = True,
        kv_format: KVFormat = "f32",
        device: str | None = None,
    ) -> ReferenceExecutor:
        """Dequantize every weight.

        Args:
            dtype: of the weights and of all arithmetic.
            limits: by default `DEFAULT_LIMITS`, for a decoder `DECODER_LIMITS`; a
                decoder's cache takes ``limits.kv_blocks`` blocks.
            observer: sees the input of every linear op, for calibration.
            quantize_activations: round the inputs of quantized linear ops to integers as
                the kernels do; False computes what the weights alone lose.
            kv_format: "f16" rounds cached keys and values to half precision.
            device: a torch device ("cpu", "cuda") to compute on; None computes in numpy.

        Raises:
            ArtifactCorrupt: the program breaks a rule, or rows are missing.
            ArtifactMissing: a tensor is not in ``weights``.
            InvalidInput: the limits leave a decoder no cache, or there is no such device.
        """
        validate(program)
        if limits is None:
            limits = DECODER_LIMITS if program.is_decoder else DEFAULT_LIMITS
        if program.is_decoder and not (limits.kv_blocks > 0 and limits.max_wanted > 0):
            raise InvalidInput(
                f"kv_blocks is {limits.kv_blocks} and max_wanted {limits.max_wanted}, "
                "expected at least 1 for a decoder"
            )
        if program.is_decoder != (limits.kv_blocks > 0):
            raise InvalidInput(f"kv_blocks is {limits.kv_blocks}, expected 0 for an encoder")
        if kv_format not in ("f32", "f16"):
            raise InvalidInput(f"kv_format is {kv_format!r}, expected 'f32' or 'f16'")
        xp = np if device is None else TorchNamespace(device)
        tables = _gathered_only(program)
        tensors = [
            xp.asarray(
                dequantize(
                    t,
                    weights.iter_rows(i, _RANGE_BYTES),
                    np.float32 if i in tables else np.dtype(dtype),
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
            kv_format=kv_format,
            xp=xp,
        )

    def _execute(self, step: Step) -> StepResult:
        start = time.perf_counter_ns()
        with np.errstate(all="ignore"):  # infinities and NaN are reported by status
            output = np.ascontiguousarray(to_numpy(self._output(step)), np.float32)
            statuses = self._statuses(step, output)
            sampled = self._sampled(step, output)
        return StepResult(
            _EMPTY if step.sampling is not None or not len(output) else _view(output),
            statuses,
            time.perf_counter_ns() - start,
            sampled,
        )

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
            [xp.asarray(np.array(t, np.int64)) for t in step.block_tables],
            xp.asarray(np.array(step.wanted, np.int64)),
            self._cache,
            self._quantize_activations,
            self._observer,
        )
        if self._cache is not None:
            self._cache.copy(step.copies)
        rows = {
            Rows.TOKENS: len(step.token_ids),
            Rows.SEQS: len(step.seqs),
            Rows.PICKED: len(step.wanted),
        }
        state.slots = [xp.zeros((rows[s.rows], s.width), dtype=self._dtype) for s in program.slots]
        for index, op in enumerate(program.ops):
            out = OPS[op.kind](state, op, index)
            if op.out >= 0:
                state.slots[op.out] = out
        return state.slots[program.output_slot]

    def _statuses(self, step: Step, output: np.ndarray[Any, Any]) -> bytes:
        """A status per sequence, from the rows of ``output`` that are its own."""
        bad = np.flatnonzero(~np.isfinite(output).all(axis=1))
        ends = np.cumsum([r.num_tokens for r in step.seqs])
        match self._program.output.rows:
            case Rows.SEQS:
                owners = bad
            case Rows.TOKENS:
                owners = np.searchsorted(ends, bad, side="right")
            case Rows.PICKED:
                wanted = np.array(step.wanted, np.int64)[bad]
                owners = np.searchsorted(ends, wanted, side="right")
        lost = set(owners.tolist())
        return bytes(
            SeqStatus.NON_FINITE if i in lost else SeqStatus.OK for i in range(len(step.seqs))
        )

    def _sampled(self, step: Step, output: np.ndarray[Any, Any]) -> tuple[Sampled, ...]:
        if step.sampling is None:
            return ()
        return tuple(sample(logits, r) for logits, r in zip(output, step.sampling, strict=True))

    def _release(self) -> None:
        self._tensors = []
        self._cache = None


_EMPTY: memoryview[float] = memoryview(b"").cast("f")


def _view(output: np.ndarray[Any, Any]) -> memoryview[float]:
    rows: memoryview[float] = memoryview(output.data).cast("B").cast("f", output.shape)
    return rows


def _gathered_only(program: Program) -> set[int]:
    """Tables that rows are only ever taken from: f32 is exact and takes half the memory."""
    tables = {
        op.tensor(name)
        for op in program.ops
        if op.kind is OpKind.EMBED
        for name in ("table", "positions")
    }
    used = {op.tensor("weight") for op in program.ops if op.kind is OpKind.LINEAR}
    return {i for i in tables - used if i >= 0 and program.tensors[i].format not in BLOCK_FORMATS}
