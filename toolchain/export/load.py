"""Loads the PyTorch model that is to be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, VoleryError
from toolchain.sources.source import ModelSource


def load_torch_model(source: ModelSource, *, fused_attention: bool) -> Any:
    """The model of ``source`` in evaluation mode, f32, on the CPU.

    An encoder comes without a head, a decoder with its language modelling head.

    Args:
        fused_attention: let torch.export see attention as one operator ("sdpa"), where
            the architecture has it; tracing needs it spelled out ("eager").

    Raises:
        ArtifactMissing, ArtifactCorrupt: the weights cannot be used.
    """
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    path = source.path
    auto = AutoModelForCausalLM if source.task == "generate" else AutoModel
    try:
        if source.gguf_path is not None:
            config = AutoConfig.for_model(**source.config())
            return _from_gguf(source.gguf_path, config, _attention(auto, config, fused_attention))
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        if hasattr(config, "reference_compile"):
            config.reference_compile = False  # torch.compile inside the model defeats tracing
        model, info = auto.from_pretrained(
            path,
            config=config,
            local_files_only=True,
            dtype=torch.float32,
            attn_implementation=_attention(auto, config, fused_attention),
            output_loading_info=True,
        )
    except VoleryError:
        raise
    except Exception as error:
        raise _one_line(source.gguf_path or path, error) from None
    missing = [k for k in info["missing_keys"] if "pooler" not in k and "position_ids" not in k]
    if missing or info["mismatched_keys"]:
        # transformers would fill the gap with random numbers
        raise ArtifactCorrupt(
            f"weights in {path} lack {len(missing) or len(info['mismatched_keys'])} tensors of the "
            f"model, {(missing or [str(k) for k in info['mismatched_keys']])[0]!r} first; "
            "fetch them again"
        )
    return model.eval()


def _attention(auto: Any, config: Any, fused: bool) -> str:
    """The attention that traces: "sdpa" where it is wanted and computes the same."""
    if getattr(config, "attn_logit_softcapping", None):
        return "eager"  # the fused one leaves the cap out
    kind = auto._model_mapping.get(type(config), None)
    return "sdpa" if fused and getattr(kind, "_supports_sdpa", False) else "eager"


def _from_gguf(path: Path, config: Any, attention: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_utils import no_init_weights

    from toolchain.sources.gguf import GgufFile, load_into

    with no_init_weights():
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=attention, dtype=torch.float32
        )
    model.tie_weights()
    load_into(model, GgufFile(path))
    return model.eval()


def _one_line(path: Path, error: Exception) -> Exception:
    text = str(error).strip().splitlines()
    reason = text[0][:300] if text else type(error).__name__
    if isinstance(error, FileNotFoundError) or "no file named" in reason:
        return ArtifactMissing(
            f"{path} holds no usable weights ({reason}); expected model.safetensors"
        )
    return ArtifactCorrupt(f"the model in {path} cannot be loaded: {reason}; fetch it again")
