"""Runs lowered programs in the float64 reference executor."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import PoolMode
from toolchain.lowering import LoweredModel
from toolchain.sources.pipeline import EmbeddingPipeline, Pooling

ALL_MODES = (
    PoolMode.CLS,
    PoolMode.MAX,
    PoolMode.MEAN,
    PoolMode.LAST,
    PoolMode.MEAN_SQRT_LEN,
    PoolMode.WEIGHTED_MEAN,
)


def every_pooling(hidden: int, max_positions: int, pad: int = 0) -> EmbeddingPipeline:
    """A pipeline that shows the token vectors from six sides."""
    return EmbeddingPipeline(
        hidden_size=hidden,
        modules=(Pooling(ALL_MODES),),
        max_tokens=max_positions or 64,
        max_tokens_source="test",
        max_positions=max_positions,
        pad_token_id=pad,
    )


def pooled(tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """The six poolings of one sequence's token vectors [T, C], concatenated: the truth."""
    n = len(tokens)
    weights = np.arange(1, n + 1)[:, None]
    parts = [
        tokens[0],
        tokens.max(0),
        tokens.mean(0),
        tokens[-1],
        tokens.sum(0) / np.sqrt(n),
        (tokens * weights).sum(0) / weights.sum(),
    ]
    return np.concatenate(parts)


def run(lowered: LoweredModel, sequences: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Embeddings [S, dimensions] of token id sequences, as one step."""
    parts = {k: w.data.cast("B") for k, w in lowered.weights.items()}
    executor = ReferenceExecutor.from_weights(
        lowered.program, MemoryWeights(lowered.program, parts), dtype="float64"
    )
    rows, ids = [], array("i")
    for s in sequences:
        rows.append(SeqRow(len(ids), len(s)))
        ids.extend(s)
    try:
        return np.asarray(executor.run(Step(ids, rows)).output, np.float64)
    finally:
        executor.close()


def random_sequences(lengths: Sequence[int], vocab: int, seed: int = 0) -> list[list[int]]:
    """Token ids without special ones."""
    rng = np.random.default_rng(seed)
    return [rng.integers(5, vocab, n).tolist() for n in lengths]


def onnx_tokens(path: Path, sequence: Sequence[int]) -> NDArray[np.float64]:
    """Token vectors [T, C] of one unpadded sequence, by ONNX Runtime."""
    import onnxruntime as ort

    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    ids = np.array([sequence], np.int64)
    feeds = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }
    names = {i.name for i in session.get_inputs()}
    return np.asarray(
        session.run(None, {k: v for k, v in feeds.items() if k in names})[0][0], np.float64
    )
