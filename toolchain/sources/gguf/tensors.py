"""GGUF tensors as the parameters of the Hugging Face model they were converted from.

Converters to GGUF rename tensors and change some: rotary rows are reordered, norms get
their offset added, Conv1D weights are turned. `load_into` undoes both, one
parameter at a time, so that memory holds the model once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from toolchain.sources.gguf.exact import F32, chunks, float_rows
from toolchain.sources.gguf.metadata import SUPPORTED, architecture, head_counts
from toolchain.sources.gguf.reader import GgufFile

if TYPE_CHECKING:
    import torch

_DECODER = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GEMMA = _DECODER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GPT2 = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "output": "lm_head",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_GPT_NEOX = {
    "token_embd": "gpt_neox.embed_in",
    "output_norm": "gpt_neox.final_layer_norm",
    "output": "embed_out",
    "attn_norm": "input_layernorm",
    "attn_qkv": "attention.query_key_value",
    "attn_output": "attention.dense",
    "ffn_norm": "post_attention_layernorm",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
_PHI2 = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.final_layernorm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.dense",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
_NAMES = {
    "llama": _DECODER,
    "qwen2": _DECODER,
    "qwen3": _DECODER,
    "gemma": _DECODER,
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
    "gpt2": _GPT2,
    "gptneox": _GPT_NEOX,
    "phi2": _PHI2,
}
assert tuple(_NAMES) == SUPPORTED
_LAYERS = {"gpt2": "transformer.h", "gptneox": "gpt_neox.layers"}
_IGNORED = ("rope_freqs.weight",)  # it is part of the configuration


def hf_name(arch: str, name: str) -> str | None:
    """The parameter that a GGUF tensor holds; None for one that is no parameter.

    Raises:
        ArtifactUnsupported: this architecture has no such tensor.
    """
    if name in _IGNORED:
        return None
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    module = _NAMES[arch].get(match[2]) if match else None
    inside = match is not None and match[1] is not None
    outer = match is not None and match[2] in ("token_embd", "position_embd", "output_norm")
    if match is None or module is None or inside == (outer or match[2] == "output"):
        raise ArtifactUnsupported(
            f"tensor {name!r} is unknown for architecture {arch!r}; this model is a variant "
            "that is not supported"
        )
    layer = f"{_LAYERS.get(arch, 'model.layers')}.{int(match[1])}." if inside else ""
    return f"{layer}{module}.{match[3]}"


def parameters(gguf: GgufFile) -> Iterator[tuple[str, F32]]:
    """(Hugging Face name, float32 array) of every parameter, one at a time.

    A tied LM head does not appear: the file does not hold it.

    Raises:
        ArtifactUnsupported: an unknown architecture, tensor or block type.
        ArtifactCorrupt: a shape that the metadata contradict.
    """
    arch = architecture(gguf)
    for name, info in gguf.tensors.items():
        target = hf_name(arch, name)
        if target is None:
            continue
        values = np.empty((info.rows, info.columns), np.float32)
        for index in chunks(gguf, name):
            values[index] = float_rows(gguf, name, index)
        try:
            yield target, _restored(gguf, arch, name, values.reshape(info.shape))
        except ValueError:
            raise ArtifactCorrupt(
                f"{gguf.path}: {name!r} has shape {info.shape}, which the head counts "
                f"{head_counts(gguf)} do not divide; convert the model again"
            ) from None


def load_into(model: torch.nn.Module, gguf: GgufFile) -> None:
    """Copy every tensor into ``model``, built from `metadata.hf_config`.

    Raises:
        ArtifactCorrupt: a parameter is missing from the file, has another shape, or the
            file has one that the model has not.
    """
    import torch

    slots = dict(model.named_parameters(remove_duplicate=False))
    filled: dict[int, str] = {}
    with torch.no_grad():
        for name, values in parameters(gguf):
            slot = slots.get(name)
            if slot is None or tuple(slot.shape) != values.shape:
                wants = "no such parameter" if slot is None else f"shape {tuple(slot.shape)}"
                raise ArtifactCorrupt(
                    f"{gguf.path}: {name} has shape {values.shape}, the model has {wants}; "
                    "the metadata do not describe these tensors"
                )
            slot.copy_(torch.from_numpy(values))
            filled[id(slot)] = name
    missing = [name for name, slot in slots.items() if id(slot) not in filled]
    if missing:
        raise ArtifactCorrupt(
            f"{gguf.path}: {len(missing)} parameters are missing, the first is {missing[0]}; "
            "convert the model again"
        )


def _restored(gguf: GgufFile, arch: str, name: str, values: F32) -> F32:
    """Undo what the converter did to one tensor."""
    part = name.split(".")[-2]
    heads, kv_heads = head_counts(gguf)
    if arch == "llama" and part in ("attn_q", "attn_k"):
        return _halves_from_pairs(values, heads if part == "attn_q" else kv_heads)
    if arch.startswith("gemma") and name.endswith("norm.weight"):
        return np.asarray(values - np.float32(1))
    if arch == "gpt2" and part in ("attn_qkv", "attn_output", "ffn_up", "ffn_down"):
        return np.ascontiguousarray(values.T)
    if arch == "gptneox" and part == "attn_qkv":
        return _heads_first(values, heads)
    return values


def _halves_from_pairs(values: F32, heads: int) -> F32:
    """Rows of each head from (0, h, 1, h+1, ...) back to (0, 1, ..., h, h+1, ...).

    llama.cpp rotates neighbours, Hugging Face the two halves of a head.
    """
    paired = values.reshape(heads, -1, 2, *values.shape[1:])
    return paired.swapaxes(1, 2).reshape(values.shape)


def _heads_first(values: F32, heads: int) -> F32:
    """Rows [q of all heads, k of all, v of all] back to [q, k, v of head 0, ...]."""
    split: npt.NDArray[Any] = values.reshape(3, heads, -1, *values.shape[1:])
    return np.asarray(split.swapaxes(0, 1).reshape(values.shape))
