"""The ONNX Runtime executor: an exported graph as it is, an oracle for our lowering.

It pads a step into a rectangle with an attention mask, as the graph's own users do, and
pools, projects and normalizes in numpy. Nothing of the program or its kernels is used.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

from runtime_py.errors import ArtifactError, ArtifactMissing, ArtifactUnsupported, InvalidInput
from runtime_py.executors.base import ExecutorLimits, SeqRow, SeqStatus, Step, StepResult
from runtime_py.executors.serial import SerialExecutor

DEFAULT_LIMITS = ExecutorLimits(1 << 16, 1 << 10, threads=1, concurrent_steps=1)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Dense:
    """A projection after pooling: weight [out, in], bias [out], an activation's name."""

    weight: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32] | None = None
    activation: str = "none"


@dataclass(frozen=True, slots=True)
class EmbeddingSpec:
    """From token vectors to one vector per text; the manifest's ``embedding`` fields.

    Attributes:
        pooling: modes whose results are put side by side, in this order.
        normalized: divide by the Euclidean norm at the end.
        dense: projections between the two.
    """

    pooling: Sequence[str] = ("mean",)
    normalized: bool = True
    dense: Sequence[Dense] = ()


def _weighted_mean(x: Floats, skip: int) -> Floats:
    weights = np.arange(skip + 1, len(x) + 1, dtype=np.float64)
    return np.average(x[skip:], axis=0, weights=weights)


_POOLING: dict[str, Callable[[Floats, int], Floats]] = {
    "mean": lambda x, skip: x[skip:].mean(axis=0),
    "cls": lambda x, skip: x[skip],
    "max": lambda x, skip: x[skip:].max(axis=0),
    "last": lambda x, skip: x[-1],
    "mean_sqrt_len": lambda x, skip: x[skip:].sum(axis=0) / np.sqrt(len(x) - skip),
    "weighted_mean": _weighted_mean,
}

_ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "none": lambda x: x,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}

_ZEROS = {"token_type_ids"}
_IDS, _MASK, _POSITIONS = "input_ids", "attention_mask", "position_ids"


@dataclass(frozen=True, slots=True)
class _Bounds:
    vocab_size: int
    max_positions: int


class OnnxRuntimeExecutor(SerialExecutor):
    """Runs an encoder's ONNX graph. Not bit-stable: a padded batch may round differently."""

    name = "onnxruntime"

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        embedding: EmbeddingSpec | None,
        *,
        vocab_size: int,
        max_positions: int,
        limits: ExecutorLimits,
    ) -> None:
        super().__init__(_Bounds(vocab_size, max_positions), limits)
        self._session, self._embedding = session, embedding
        self._inputs = {i.name: i.type for i in session.get_inputs()}
        unknown = set(self._inputs) - _ZEROS - {_IDS, _MASK, _POSITIONS}
        if unknown or _IDS not in self._inputs:
            raise ArtifactUnsupported(
                f"the graph has inputs {sorted(self._inputs)}, expected {_IDS} and of "
                f"{sorted(_ZEROS | {_MASK, _POSITIONS})} any; export an encoder"
            )
        outputs = [o.name for o in session.get_outputs()]
        named = [o for o in ("last_hidden_state", "token_embeddings") if o in outputs]
        self._output = (named or outputs)[0]

    @classmethod
    def from_onnx(
        cls,
        path: str | os.PathLike[str],
        embedding: EmbeddingSpec | None = None,
        *,
        vocab_size: int = 2**31 - 1,
        max_positions: int = 0,
        limits: ExecutorLimits = DEFAULT_LIMITS,
        providers: Sequence[str] = ("CPUExecutionProvider",),
        threads: int = 0,
    ) -> OnnxRuntimeExecutor:
        """Load a graph.

        Args:
            path: an ONNX file; its first output, or ``last_hidden_state``, is
                [batch, tokens, width].
            embedding: how texts become vectors; None gives token vectors as they are.
            vocab_size, max_positions: bounds that steps are checked against
                (``max_positions`` 0: unlimited).
            providers: ONNX Runtime's, e.g. ``("CUDAExecutionProvider",)``.
            threads: inside one graph run; 0 lets ONNX Runtime choose.

        Raises:
            ArtifactMissing: there is no file at ``path``.
            ArtifactUnsupported: ONNX Runtime refuses the graph, or it is no encoder.
            InvalidInput: an unknown pooling mode, activation or provider.
        """
        if not os.path.isfile(path):
            raise ArtifactMissing(f"there is no ONNX file at {os.fspath(path)}; export the model")
        for what, names, known in (
            ("pooling", embedding.pooling if embedding else (), set(_POOLING)),
            (
                "activation",
                [d.activation for d in embedding.dense] if embedding else (),
                set(_ACTIVATIONS),
            ),
            ("provider", providers, set(onnxruntime.get_available_providers())),
        ):
            for name in names:
                if name not in known:
                    raise InvalidInput(f"unknown {what} {name!r}, expected of {sorted(known)}")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = threads
        try:
            session = onnxruntime.InferenceSession(os.fspath(path), options, list(providers))
        except Exception as error:  # its errors share no base class but Exception
            raise ArtifactUnsupported(
                f"ONNX Runtime cannot load {os.fspath(path)}: {str(error).splitlines()[0]}"
            ) from error
        return cls(
            session, embedding, vocab_size=vocab_size, max_positions=max_positions, limits=limits
        )

    def _execute(self, step: Step) -> StepResult:
        start = time.perf_counter_ns()
        inputs = self._padded(step)
        try:
            (hidden,) = self._session.run([self._output], inputs)
        except Exception as error:
            raise ArtifactError(
                f"ONNX Runtime failed in a step of {len(step.seqs)} sequences: "
                f"{str(error).splitlines()[0]}"
            ) from error
        if hidden.ndim != 3 or hidden.shape[0] != len(step.seqs):
            raise ArtifactUnsupported(
                f"output {self._output} has shape {hidden.shape}, expected [batch, tokens, width]"
            )
        vectors = [
            h[: row.num_tokens].astype(np.float64) for h, row in zip(hidden, step.seqs, strict=True)
        ]
        with np.errstate(all="ignore"):
            if self._embedding is not None:
                vectors = [
                    _embed(self._embedding, v, row)[None]
                    for v, row in zip(vectors, step.seqs, strict=True)
                ]
        statuses = bytes(
            SeqStatus.OK if np.isfinite(v).all() else SeqStatus.NON_FINITE for v in vectors
        )
        output = np.concatenate(vectors).astype(np.float32)
        rows: memoryview[float] = memoryview(output.data).cast("B").cast("f", output.shape)
        return StepResult(rows, statuses, time.perf_counter_ns() - start)

    def _padded(self, step: Step) -> dict[str, npt.NDArray[Any]]:
        """The graph's inputs, [sequences, longest length], padded on the right with id 0."""
        shape = (len(step.seqs), max(row.num_tokens for row in step.seqs))
        ids, mask, positions = (np.zeros(shape, np.int64) for _ in range(3))
        for i, row in enumerate(step.seqs):
            if row.context_len:
                raise InvalidInput(
                    f"sequence {i} continues after {row.context_len} tokens, "
                    "an encoder graph has no memory of earlier steps"
                )
            end = row.first_token + row.num_tokens
            ids[i, : row.num_tokens] = step.token_ids[row.first_token : end]
            mask[i, : row.num_tokens] = 1
            positions[i, : row.num_tokens] = np.arange(row.num_tokens)
        feeds = {_IDS: ids, _MASK: mask, _POSITIONS: positions}
        feeds.update((name, np.zeros(shape, np.int64)) for name in _ZEROS)
        dtypes = {"tensor(int32)": np.int32, "tensor(float)": np.float32}
        return {
            name: feeds[name].astype(dtypes.get(kind, np.int64), copy=False)
            for name, kind in self._inputs.items()
        }

    def _release(self) -> None:
        del self._session


def _embed(spec: EmbeddingSpec, x: Floats, row: SeqRow) -> Floats:
    """Token vectors [n, C] of one sequence -> [D]."""
    out = np.concatenate([_POOLING[mode](x, row.pool_skip) for mode in spec.pooling])
    for dense in spec.dense:
        out = dense.weight.astype(np.float64) @ out
        if dense.bias is not None:
            out = out + dense.bias
        out = _ACTIVATIONS[dense.activation](out)
    if spec.normalized:
        out = out / np.maximum(np.linalg.norm(out), 1e-12)
    return out
