"""ONNX Runtime's transformer optimizer: fuses a graph into ``com.microsoft`` ops."""

from __future__ import annotations

from pathlib import Path

import onnx

from runtime_py.errors import ArtifactError


def optimize(path: Path, heads: int, hidden_size: int) -> onnx.ModelProto:
    """The graph in ``path`` with attention, norms, biases and embeddings fused.

    Raises:
        ArtifactError: the optimizer failed.
    """
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    options = FusionOptions("bert")
    try:
        fused = optimizer.optimize_model(
            str(path),
            model_type="bert",
            num_heads=heads,
            hidden_size=hidden_size,
            optimization_options=options,
            opt_level=0,
        )
    except Exception as error:
        text = str(error).strip().splitlines()
        raise ArtifactError(
            f"ONNX Runtime's optimizer failed ({(text or [type(error).__name__])[0][:200]}); "
            "export with optimize='none'"
        ) from None
    model: onnx.ModelProto = fused.model
    return model
