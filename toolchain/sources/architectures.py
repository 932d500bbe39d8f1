"""Which architectures can be exported, decided from config.json alone.

Families that the test-suite lowers are listed. Any other architecture that
transformers itself implements as a masked language model is an encoder too, and one
that it implements as a causal language model only is a decoder: it takes the same
path, and the lowering then says whether its graph is understood.
"""

from __future__ import annotations

import difflib
from typing import Any, Literal

from runtime_py.errors import ArtifactUnsupported

Task = Literal["embed", "generate"]
"""What a model is exported for: token vectors, or logits of the next token."""

TESTED_ENCODERS = (
    "albert",
    "bert",
    "camembert",
    "distilbert",
    "electra",
    "modernbert",
    "mpnet",
    "roberta",
    "xlm-roberta",
)

TESTED_DECODERS = (
    "gemma",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "gpt_neox",
    "llama",
    "mistral",
    "phi",
    "qwen2",
    "qwen3",
)

KNOWN_UNSUPPORTED = {
    "deberta": "its attention mixes content and position scores",
    "deberta-v2": "its attention mixes content and position scores",
    "big_bird": "its attention is block-sparse",
    "longformer": "its attention is banded with global tokens",
    "fnet": "it mixes tokens by Fourier transforms",
    "reformer": "its attention hashes its keys",
    "perceiver": "it attends from latent vectors",
    "gemma3": "it reads images as well; give its text model",
    "mamba": "it keeps a state instead of attending",
    "mamba2": "it keeps a state instead of attending",
    "rwkv": "it keeps a state instead of attending",
    "mixtral": "it is a mixture of experts",
    "qwen2_moe": "it is a mixture of experts",
    "qwen3_moe": "it is a mixture of experts",
    "gpt_oss": "it is a mixture of experts",
}


_TESTED = (*TESTED_ENCODERS, *TESTED_DECODERS)


def task_of(architecture: str) -> Task:
    """What a model of this ``model_type`` is for: "generate" for a decoder."""
    if architecture in TESTED_ENCODERS or architecture == "unknown":
        return "embed"
    if architecture in TESTED_DECODERS:
        return "generate"
    return "embed" if _is_masked_lm(architecture) or not _is_causal_lm(architecture) else "generate"


def check_architecture(config: dict[str, Any], where: str) -> str:
    """``model_type`` of an encoder or decoder that can be exported.

    Args:
        config: the model's config.json.
        where: what the error message calls the model.

    Raises:
        ArtifactUnsupported: the type is missing, unknown, neither an encoder nor a
            decoder, or needs code that ships with the model.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        raise ArtifactUnsupported(
            f"{where}: config.json names no model_type, expected one of {_listed()}"
        )
    if config.get("auto_map") and kind not in _TESTED:
        raise ArtifactUnsupported(
            f"{where}: architecture {kind!r} runs code from its repository "
            f"(trust_remote_code), which is never executed; supported: {_listed()}; "
            f"{_nearest(kind)}give its model.onnx instead if it has one"
        )
    if kind in TESTED_ENCODERS:
        if config.get("is_decoder"):
            raise ArtifactUnsupported(
                f"{where}: this {kind} is configured as a decoder (is_decoder), expected an encoder"
            )
        return kind
    if kind in TESTED_DECODERS:
        return kind
    reason = KNOWN_UNSUPPORTED.get(kind)
    if reason is None and not (_is_masked_lm(kind) or _is_causal_lm(kind)):
        reason = "it is no encoder and no language model that transformers implements"
    if reason is not None:
        raise ArtifactUnsupported(
            f"{where}: architecture {kind!r} is not supported ({reason}); "
            f"supported: {_listed()}; {_nearest(kind)}choose another model"
        )
    return kind


def _is_masked_lm(kind: str) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    return kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES


def _is_causal_lm(kind: str) -> bool:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def _listed() -> str:
    return ", ".join(_TESTED)


def _nearest(kind: str) -> str:
    close = difflib.get_close_matches(kind.replace("_", "-"), _TESTED, n=1, cutoff=0.4)
    return f"nearest: {close[0]}; " if close else ""
