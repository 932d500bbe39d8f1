"""What an export yields, and how it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from toolchain.sources.architectures import Task

Exporter = Literal["optimum", "dynamo"]
Optimizer = Literal["none", "ort"]

OUTPUT_NAMES: dict[Task, str] = {"embed": "last_hidden_state", "generate": "logits"}
"""The graph's output by task: f32 [batch, sequence, hidden or vocabulary]."""


@dataclass(frozen=True, slots=True)
class OnnxModel:
    """An exported graph.

    Attributes:
        path: the ``.onnx`` file; external data, if any, lies beside it.
        exporter: what wrote it: "optimum", "torchscript" (the same tracer, for
            architectures that Optimum does not know), "dynamo", or "given".
        opset: version of the default operator set.
        versions: package -> version of everything that took part.
        max_abs_diff: worst difference from PyTorch over the shapes that were checked;
            None when the graph was given and there is nothing to compare it with.
    """

    path: Path
    exporter: str
    opset: int
    versions: Mapping[str, str] = field(default_factory=dict)
    max_abs_diff: float | None = None
