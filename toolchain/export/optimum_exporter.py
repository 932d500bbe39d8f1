"""The default exporter: Optimum's configurations over torch's TorchScript tracer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

DEFAULT_OPSET = 18


def export_optimum(model: Any, path: Path, opset: int) -> str:
    """Trace ``model`` to ``path``; returns the exporter's name.

    An architecture that Optimum has no configuration for is traced directly.
    """
    import optimum.exporters.onnx.model_configs  # noqa: F401 - registers the architectures
    import torch
    from optimum.exporters.onnx import export
    from optimum.exporters.tasks import TasksManager

    kind = model.config.model_type
    known = "onnx" in TasksManager._SUPPORTED_MODEL_TYPE.get(kind, {})
    if not known or kind in TasksManager._UNSUPPORTED_CLI_MODEL_TYPE:
        _trace(model, path, opset)
        return "torchscript"
    constructor = TasksManager.get_exporter_config_constructor(
        "onnx", model, task="feature-extraction", library_name="transformers"
    )
    with torch.no_grad():
        export(
            model,
            constructor(model.config),
            path,
            opset=opset,
            # never 1, which tracers take for a constant, nor a size that the model has
            input_shapes={"batch_size": 2, "sequence_length": 5},
            disable_dynamic_axes_fix=True,
        )
    return "optimum"


def _trace(model: Any, path: Path, opset: int) -> None:
    import torch

    axes = {0: "batch_size", 1: "sequence_length"}
    ids = torch.arange(10).reshape(2, 5) % model.config.vocab_size
    with torch.no_grad():
        torch.onnx.export(
            TokenVectors(model).eval(),  # else the exporter would leave dropout switched on
            (ids, torch.ones_like(ids)),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state"],
            dynamic_axes=dict.fromkeys(("input_ids", "attention_mask", "last_hidden_state"), axes),
            opset_version=opset,
            dynamo=False,
        )


def TokenVectors(model: Any) -> Any:  # noqa: N802 - a class whose base needs torch
    """``model`` as a module from (input_ids, attention_mask) to token vectors."""
    import torch

    class _TokenVectors(torch.nn.Module):  # type: ignore[misc]  # torch is untyped here
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

    return _TokenVectors()
