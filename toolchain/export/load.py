"""Loads the PyTorch model that is to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing


def load_torch_model(path: Path, *, fused_attention: bool) -> Any:
    """The encoder in ``path`` in evaluation mode, f32, on the CPU.

    Args:
        fused_attention: let torch.export see attention as one operator ("sdpa"), where
            the architecture has it; tracing needs it spelled out ("eager").

    Raises:
        ArtifactMissing, ArtifactCorrupt: the weights cannot be used.
    """
    import torch
    from transformers import MODEL_MAPPING, AutoConfig, AutoModel

    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        if hasattr(config, "reference_compile"):
            config.reference_compile = False  # torch.compile inside the model defeats tracing
        kind = MODEL_MAPPING.get(type(config), None)
        has_fused = bool(getattr(kind, "_supports_sdpa", False))
        model, info = AutoModel.from_pretrained(
            path,
            config=config,
            local_files_only=True,
            dtype=torch.float32,
            attn_implementation="sdpa" if fused_attention and has_fused else "eager",
            output_loading_info=True,
        )
    except Exception as error:
        raise _one_line(path, error) from None
    missing = [k for k in info["missing_keys"] if "pooler" not in k and "position_ids" not in k]
    if missing or info["mismatched_keys"]:
        # transformers would fill the gap with random numbers
        raise ArtifactCorrupt(
            f"weights in {path} lack {len(missing) or len(info['mismatched_keys'])} tensors of the "
            f"model, {(missing or [str(k) for k in info['mismatched_keys']])[0]!r} first; "
            "fetch them again"
        )
    return model.eval()


def _one_line(path: Path, error: Exception) -> Exception:
    text = str(error).strip().splitlines()
    reason = text[0][:300] if text else type(error).__name__
    if isinstance(error, FileNotFoundError) or "no file named" in reason:
        return ArtifactMissing(
            f"{path} holds no usable weights ({reason}); expected model.safetensors"
        )
    return ArtifactCorrupt(f"the model in {path} cannot be loaded: {reason}; fetch it again")
