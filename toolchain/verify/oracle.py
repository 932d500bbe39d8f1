"""The truth that quantization is measured against: the f32 graph, run by ONNX Runtime.

Nothing of the lowering or of our kernels takes part, neither in the encoder nor in the
head behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.executors.base import ModelExecutor
from runtime_py.executors.onnxruntime import OnnxRuntimeExecutor
from runtime_py.executors.reference.functions import activate
from runtime_py.program import PoolMode, Program
from toolchain.sources.pipeline import (
    Dense,
    EmbeddingPipeline,
    HeadModule,
    LayerNorm,
    Normalize,
    Pooling,
)
from toolchain.verify.steps import packed_steps

Doubles = npt.NDArray[np.float64]


def graph_embeddings(
    onnx_path: Path,
    pipeline: EmbeddingPipeline,
    program: Program,
    token_ids: Sequence[Sequence[int]],
) -> Doubles:
    """One vector per text, f64 [texts, dimensions], in the order of ``token_ids``."""
    executor: ModelExecutor = OnnxRuntimeExecutor.from_onnx(
        onnx_path, vocab_size=program.vocab_size, max_positions=program.max_positions
    )
    out = np.zeros((len(token_ids), pipeline.dimensions))
    try:
        for indices, step in packed_steps(token_ids, executor.limits):
            tokens = np.asarray(executor.run(step).output, np.float64)
            for i, row in zip(indices, step.seqs, strict=True):
                vectors = tokens[row.first_token : row.first_token + row.num_tokens]
                out[i] = head(pipeline.modules, vectors)
    finally:
        executor.close()
    return out


def head(modules: Sequence[HeadModule], tokens: Doubles) -> Doubles:
    """What a sentence-transformers pipeline makes of one text's token vectors [n, C]."""
    x = tokens
    for module in modules:
        match module:
            case Pooling(modes):
                x = np.concatenate([_pool(mode, x) for mode in modes])
            case Dense():
                x = x @ module.weight.T.astype(np.float64)
                x = x if module.bias is None else x + module.bias
                x = _activate(module, x)
            case LayerNorm():
                centred = x - x.mean()
                x = centred / np.sqrt(np.square(centred).mean() + module.eps)
                x = x * module.weight + module.bias
            case Normalize():
                x = x / max(float(np.linalg.norm(x)), module.eps)
    return x


def _activate(module: Dense, x: Doubles) -> Doubles:
    result: Any = activate(np, module.activation, x)
    return np.asarray(result, np.float64)


def _pool(mode: PoolMode, x: Doubles) -> Doubles:
    match mode:
        case PoolMode.MEAN:
            out = x.mean(axis=0)
        case PoolMode.CLS:
            out = x[0]
        case PoolMode.MAX:
            out = x.max(axis=0)
        case PoolMode.LAST:
            out = x[-1]
        case PoolMode.MEAN_SQRT_LEN:
            out = x.sum(axis=0) / np.sqrt(len(x))
        case PoolMode.WEIGHTED_MEAN:
            out = np.average(x, axis=0, weights=np.arange(1, len(x) + 1))
    return np.asarray(out, np.float64)
