"""The torch.export based exporter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolchain.export.optimum_exporter import TokenRows
from toolchain.export.types import OUTPUT_NAMES
from toolchain.sources.architectures import Task

OPSETS = (18, 23)


def export_dynamo(model: Any, path: Path, opset: int, task: Task) -> str:
    """Export ``model`` through torch.export to ``path``; returns the exporter's name."""
    import torch

    # 1 would be specialised, and equal sizes would be taken for one symbol
    ids = torch.arange(10).reshape(2, 5) % model.config.vocab_size
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")}
    with torch.no_grad():
        torch.onnx.export(
            TokenRows(model, OUTPUT_NAMES[task]).eval(),
            (ids, torch.ones_like(ids)),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=[OUTPUT_NAMES[task]],
            dynamic_shapes={"input_ids": axes, "attention_mask": axes},
            opset_version=opset,
            dynamo=True,
            external_data=True,
            verbose=False,
        )
    return "dynamo"
