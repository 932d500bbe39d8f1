"""The default exporter: Optimum's configurations over torch's TorchScript tracer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolchain.export.types import OUTPUT_NAMES
from toolchain.sources.architectures import Task

DEFAULT_OPSET = 18


_OPTIMUM_TASKS: dict[Task, str] = {"embed": "feature-extraction", "generate": "text-generation"}


def export_optimum(model: Any, path: Path, opset: int, task: Task) -> str:
    """Trace ``model`` to ``path``, without a key-value cache; returns the exporter's name.

    An architecture that Optimum has no configuration for is traced directly.
    """
    import optimum.exporters.onnx.model_configs  # noqa: F401 - registers the architectures
    import torch
    from optimum.exporters.onnx import export
    from optimum.exporters.tasks import TasksManager

    kind = model.config.model_type
    known = "onnx" in TasksManager._SUPPORTED_MODEL_TYPE.get(kind, {})
    if not known or kind in TasksManager._UNSUPPORTED_CLI_MODEL_TYPE:
        _trace(model, path, opset, OUTPUT_NAMES[task])
        return "torchscript"
    constructor = TasksManager.get_exporter_config_constructor(
        "onnx", model, task=_OPTIMUM_TASKS[task], library_name="transformers"
    )
    with torch.no_grad():
        export(
            model,
            constructor(model.config, task=_OPTIMUM_TASKS[task]),
            path,
            opset=opset,
            # never 1, which tracers take for a constant, nor a size that the model has
            input_shapes={"batch_size": 2, "sequence_length": 5},
            disable_dynamic_axes_fix=True,
        )
    return "optimum"


def _trace(model: Any, path: Path, opset: int, output: str) -> None:
    import torch

    axes = {0: "batch_size", 1: "sequence_length"}
    ids = torch.arange(10).reshape(2, 5) % model.config.vocab_size
    with torch.no_grad():
        torch.onnx.export(
            TokenRows(model, output).eval(),  # else the exporter would leave dropout switched on
            (ids, torch.ones_like(ids)),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=[output],
            dynamic_axes=dict.fromkeys(("input_ids", "attention_mask", output), axes),
            opset_version=opset,
            dynamo=False,
        )


def TokenRows(model: Any, output: str) -> Any:  # noqa: N802 - a class whose base needs torch
    """``model`` as a module from (input_ids, attention_mask) to ``output``, a row per token."""
    import torch

    class _TokenRows(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return token_rows(self.model, input_ids, attention_mask, output)

    return _TokenRows()


def token_rows(model: Any, input_ids: Any, attention_mask: Any, output: str) -> Any:
    """``output`` of ``model`` for tensors [batch, sequence]: [batch, sequence, width]."""
    options = {"use_cache": False} if output == OUTPUT_NAMES["generate"] else {}
    made = model(input_ids=input_ids, attention_mask=attention_mask, **options)
    return getattr(made, output)
