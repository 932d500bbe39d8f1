"""Loads the PyTorch model that is to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported


def load_torch_model(path: Path, attention: str) -> Any:
    """The encoder in ``path`` in evaluation mode, f32, on the CPU.

    Args:
        attention: "eager" for tracing, which cannot see through fused attention
            kernels, or "sdpa" for torch.export, which keeps them whole.

    Raises:
        ArtifactMissing, ArtifactCorrupt, ArtifactUnsupported: the weights cannot be used.
    """
    import torch
    from transformers import AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        if hasattr(config, "reference_compile"):
            config.reference_compile = False  # torch.compile inside the model defeats tracing
        model, info = AutoModel.from_pretrained(
            path,
            config=config,
            local_files_only=True,
            dtype=torch.float32,
            attn_implementation=attention,
            output_loading_info=True,
        )
    except Exception as error:
        raise _one_line(path, attention, error) from None
    missing = [k for k in info["missing_keys"] if "pooler" not in k and "position_ids" not in k]
    if missing or info["mismatched_keys"]:
        # transformers would fill the gap with random numbers
        raise ArtifactCorrupt(
            f"weights in {path} lack {len(missing) or len(info['mismatched_keys'])} tensors of the "
            f"model, {(missing or [str(k) for k in info['mismatched_keys']])[0]!r} first; "
            "fetch them again"
        )
    return model.eval()


def _one_line(path: Path, attention: str, error: Exception) -> Exception:
    text = str(error).strip().splitlines()
    reason = text[0][:300] if text else type(error).__name__
    if isinstance(error, FileNotFoundError) or "no file named" in reason:
        return ArtifactMissing(
            f"{path} holds no usable weights ({reason}); expected model.safetensors"
        )
    if "does not support an attention implementation" in reason or "attn_implementation" in reason:
        return ArtifactUnsupported(
            f"the model in {path} has no {attention!r} attention, which exporting it needs"
        )
    return ArtifactCorrupt(f"the model in {path} cannot be loaded: {reason}; fetch it again")
