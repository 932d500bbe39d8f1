"""Proves that a graph computes what PyTorch computes, at shapes it was not traced with.

Exporters are known to freeze a batch or length of 1, or the traced length itself, into
constants; such a graph works in the demo and fails at the second request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime_py.errors import ArtifactError
from toolchain.export.optimum_exporter import token_rows
from toolchain.export.types import OUTPUT_NAMES
from toolchain.sources.architectures import Task

SHAPES = ((1, 1), (1, 7), (3, 7), (2, 12))
TOLERANCE = 1e-4


def verify_graph(
    path: Path, model: Any, *, task: Task, vocab_size: int, pad_token_id: int
) -> float:
    """Worst absolute difference between the graph and ``model`` over `SHAPES`.

    Rows of a batch have different lengths; only tokens that exist are compared. Logits,
    whose size a model is free to choose, are compared relative to the largest.

    Raises:
        ArtifactError: the graph does not run at a shape, or differs by more than 1e-4.
    """
    import onnxruntime as ort
    import torch

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # as written: the optimizer of the checking engine is not what is being checked
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    rng = np.random.default_rng(0)
    worst = 0.0
    try:
        session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ArtifactError(
            f"ONNX Runtime cannot load the exported graph: {_line(error)}"
        ) from None
    names = {i.name for i in session.get_inputs()}
    for batch, length in SHAPES:
        ids, mask = sample(rng, batch, length, vocab_size, pad_token_id)
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feeds["position_ids"] = np.broadcast_to(np.arange(length), ids.shape).copy()
        output = OUTPUT_NAMES[task]
        try:
            (got,) = session.run([output], {k: v for k, v in feeds.items() if k in names})
        except Exception as error:
            raise ArtifactError(
                f"the exported graph fails at batch {batch}, length {length} ({_line(error)}): "
                "the exporter froze a shape; use another exporter or opset"
            ) from None
        with torch.no_grad():
            want = token_rows(model, torch.from_numpy(ids), torch.from_numpy(mask), output).numpy()
        if got.shape != want.shape:
            raise ArtifactError(
                f"the exported graph gives {got.shape} where PyTorch gives {want.shape}: "
                "the exporter froze a shape; use another exporter or opset"
            )
        exists = mask.astype(bool)
        size = max(1.0, float(np.abs(want[exists]).max())) if task == "generate" else 1.0
        worst = max(worst, float(np.abs(got - want)[exists].max()) / size)
        if not worst <= TOLERANCE:
            raise ArtifactError(
                f"the exported graph differs from PyTorch by {worst:.3g} at batch {batch}, "
                f"length {length}, expected at most {TOLERANCE:g}; use another exporter or opset"
            )
    return worst


def sample(
    rng: np.random.Generator, batch: int, length: int, vocab_size: int, pad_token_id: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Random token ids [batch, length] and their attention mask, right-padded raggedly."""
    low = min(5, vocab_size - 1)
    ids = rng.integers(low, vocab_size, (batch, length))
    ids[ids == pad_token_id] = low if low != pad_token_id else low + 1
    lengths = np.maximum(1, length - 2 * np.arange(batch))
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return np.where(mask == 1, ids, pad_token_id), mask


def _line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return (text[0] if text else type(error).__name__)[:300]
