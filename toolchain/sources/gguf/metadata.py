"""A GGUF file's metadata as the Hugging Face configuration it was converted from.

What a converter drops and every runtime hard-codes per architecture (Gemma's query
scale, the local rope base, activations) is put back here, each with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from toolchain.sources.gguf.reader import GgufFile
from toolchain.sources.gguf.rope import rope_scaling

SUPPORTED = (
    "llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gpt2", "gptneox", "phi2",
)  # fmt: skip

_ARCH = "{arch}."


def architecture(gguf: GgufFile) -> str:
    """``general.architecture``, if it is one that can be built.

    Raises:
        ArtifactCorrupt: the file names none.
        ArtifactUnsupported: another architecture, or a mixture of experts.
    """
    arch = gguf.value("general.architecture", str)
    if arch is None:
        raise ArtifactCorrupt(
            f"{gguf.path} names no general.architecture; it holds no model, or is damaged"
        )
    if arch not in SUPPORTED:
        raise ArtifactUnsupported(
            f"{gguf.path}: architecture {arch!r} is not supported, expected one of "
            f"{', '.join(SUPPORTED)}; choose another model"
        )
    if gguf.value("{arch}.expert_count", int, 0) > 0:
        raise ArtifactUnsupported(
            f"{gguf.path}: a mixture of {gguf.value('{arch}.expert_count', int)} experts is not "
            "supported; choose a dense model"
        )
    return str(arch)


def head_counts(gguf: GgufFile) -> tuple[int, int]:
    """(query heads, key/value heads), the same in every layer."""
    heads = _uniform(gguf, "attention.head_count")
    if heads is None:
        raise _absent(gguf, "attention.head_count")
    return heads, _uniform(gguf, "attention.head_count_kv") or heads


def license_of(gguf: GgufFile) -> str | None:
    """The licence's identifier, or its name where it has none."""
    found = gguf.value("general.license", str) or gguf.value("general.license.name", str)
    return str(found) if found else None


def name_of(gguf: GgufFile) -> str:
    """What the file calls the model; its own name if it says nothing."""
    return str(gguf.value("general.name", str) or gguf.path.stem)


def hf_config(gguf: GgufFile) -> dict[str, Any]:
    """``config.json`` of the model, for ``AutoConfig.for_model(**config)``.

    Raises:
        ArtifactCorrupt: a value is missing, of the wrong type or impossible.
        ArtifactUnsupported: an architecture or variant that cannot be built.
    """
    arch = architecture(gguf)
    config = _BUILDERS[arch](gguf)
    tokens = {
        "bos_token_id": gguf.value("tokenizer.ggml.bos_token_id", int),
        "eos_token_id": gguf.value("tokenizer.ggml.eos_token_id", int),
        "pad_token_id": gguf.value("tokenizer.ggml.padding_token_id", int),
    }
    return {
        **config,
        "vocab_size": _vocab_size(gguf),
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        **{k: v for k, v in tokens.items() if v is not None and v < _vocab_size(gguf)},
        "torch_dtype": "float32",
    }


def _common(gguf: GgufFile) -> dict[str, Any]:
    """What every architecture with rotary embeddings shares."""
    heads, kv_heads = head_counts(gguf)
    hidden = _required(gguf, "embedding_length")
    head_dim = gguf.value("{arch}.attention.key_length", int) or hidden // heads
    if heads % kv_heads or head_dim < 1 or head_dim % 2:
        raise ArtifactCorrupt(
            f"{gguf.path}: {heads} heads of {head_dim} on {kv_heads} key/value heads, expected "
            "an even width and a divisor; convert the model again"
        )
    if gguf.value("{arch}.attention.value_length", int, head_dim) != head_dim:
        raise ArtifactUnsupported(
            f"{gguf.path}: keys and values of different width are not supported; "
            "choose another model"
        )
    config = {
        "hidden_size": hidden,
        "intermediate_size": _uniform(gguf, "feed_forward_length") or 4 * hidden,
        "num_hidden_layers": _required(gguf, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": _required(gguf, "context_length"),
        "rope_theta": gguf.value("{arch}.rope.freq_base", float, 10000.0),
    }
    scaling = rope_scaling(gguf, head_dim, config["rope_theta"])
    return config | {"head_dim": head_dim, "rope_scaling": scaling}


def _rms(gguf: GgufFile) -> dict[str, Any]:
    config = _common(gguf)
    config["rms_norm_eps"] = _eps(gguf, "layer_norm_rms_epsilon")
    if gguf.value("{arch}.rope.dimension_count", int, config["head_dim"]) != config["head_dim"]:
        raise ArtifactUnsupported(
            f"{gguf.path}: rotary width {gguf.value('{arch}.rope.dimension_count', int)} differs "
            f"from the head's {config['head_dim']}, which this architecture has no option for"
        )
    return config


def _llama(gguf: GgufFile) -> dict[str, Any]:
    config = _rms(gguf) | {"hidden_act": "silu"}
    window = gguf.value("{arch}.attention.sliding_window", int)
    if window:  # the only llama-shaped family with a window
        return config | {
            "model_type": "mistral",
            "architectures": ["MistralForCausalLM"],
            "sliding_window": window,
        }
    return config | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": "blk.0.attn_q.bias" in gguf.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in gguf.tensors,
    }


def _qwen2(gguf: GgufFile) -> dict[str, Any]:
    return _rms(gguf) | {
        "model_type": "qwen2",
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_act": "silu",
        "use_sliding_window": False,
    }


def _qwen3(gguf: GgufFile) -> dict[str, Any]:
    return _rms(gguf) | {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in gguf.tensors,
        "use_sliding_window": False,
    }


def _gemma(gguf: GgufFile) -> dict[str, Any]:
    return _rms(gguf) | {
        "model_type": "gemma",
        "architectures": ["GemmaForCausalLM"],
        "hidden_activation": "gelu_pytorch_tanh",
    }


def _gemma2(gguf: GgufFile) -> dict[str, Any]:
    config = _rms(gguf)
    return config | {
        "model_type": "gemma2",
        "architectures": ["Gemma2ForCausalLM"],
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": _query_scalar(config, largest_layers=46),
        "attn_logit_softcapping": gguf.value("{arch}.attn_logit_softcapping", float, 50.0),
        "final_logit_softcapping": gguf.value("{arch}.final_logit_softcapping", float, 30.0),
        "sliding_window": gguf.value("{arch}.attention.sliding_window", int, 4096),
    }


def _gemma3(gguf: GgufFile) -> dict[str, Any]:
    config = _rms(gguf)
    layers = config["num_hidden_layers"]
    return config | {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": _query_scalar(config, largest_layers=62),
        "sliding_window": gguf.value("{arch}.attention.sliding_window", int, 1024),
        # five local layers, then a global one: the pattern of every size
        "layer_types": [
            "full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)
        ],
        "rope_theta": gguf.value("{arch}.rope.freq_base", float, 1_000_000.0),
        "rope_local_base_freq": gguf.value("{arch}.rope.freq_base_swa", float, 10000.0),
        "final_logit_softcapping": gguf.value("{arch}.final_logit_softcapping", float),
        "attn_logit_softcapping": None,
    }


def _query_scalar(config: dict[str, Any], largest_layers: int) -> int:
    """Gemma scales queries by the head's width, its largest size by hidden / heads.

    The file does not say which; the number of layers tells the size.
    """
    if config["num_hidden_layers"] == largest_layers:
        return int(config["hidden_size"] // config["num_attention_heads"])
    return int(config["head_dim"])


def _gpt2(gguf: GgufFile) -> dict[str, Any]:
    heads, _ = head_counts(gguf)
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": _required(gguf, "embedding_length"),
        "n_inner": _uniform(gguf, "feed_forward_length"),
        "n_layer": _required(gguf, "block_count"),
        "n_head": heads,
        "n_positions": _required(gguf, "context_length"),
        "layer_norm_epsilon": _eps(gguf, "layer_norm_epsilon"),
        "activation_function": "gelu_new",
    }


def _partial_rotary(gguf: GgufFile) -> tuple[dict[str, Any], float]:
    config = _common(gguf)
    head_dim = config.pop("head_dim")
    rotary = gguf.value("{arch}.rope.dimension_count", int, head_dim)
    if not 0 < rotary <= head_dim or rotary % 2:
        raise ArtifactCorrupt(
            f"{gguf.path}: rotary width {rotary} for heads of {head_dim}, expected an even "
            "width within the head; convert the model again"
        )
    return config, rotary / head_dim


def _gptneox(gguf: GgufFile) -> dict[str, Any]:
    config, part = _partial_rotary(gguf)
    config.pop("num_key_value_heads")
    return config | {
        "model_type": "gpt_neox",
        "architectures": ["GPTNeoXForCausalLM"],
        "rotary_pct": part,
        "rotary_emb_base": config.pop("rope_theta"),
        "layer_norm_eps": _eps(gguf, "layer_norm_epsilon"),
        "use_parallel_residual": gguf.value("{arch}.use_parallel_residual", bool, True),
        "hidden_act": "gelu",
        "attention_bias": "blk.0.attn_qkv.bias" in gguf.tensors,
    }


def _phi2(gguf: GgufFile) -> dict[str, Any]:
    config, part = _partial_rotary(gguf)
    return config | {
        "model_type": "phi",
        "architectures": ["PhiForCausalLM"],
        "partial_rotary_factor": part,
        "layer_norm_eps": _eps(gguf, "layer_norm_epsilon"),
        "hidden_act": "gelu_new",
    }


_BUILDERS: dict[str, Callable[[GgufFile], dict[str, Any]]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3": _gemma3,
    "gpt2": _gpt2,
    "gptneox": _gptneox,
    "phi2": _phi2,
}


def _required(gguf: GgufFile, key: str) -> int:
    value = gguf.value(_ARCH + key, int)
    if value is None:
        raise _absent(gguf, key)
    if not 0 < value < 1 << 31:
        raise ArtifactCorrupt(f"{gguf.path}: {key} is {value}, expected a positive number")
    return int(value)


def _uniform(gguf: GgufFile, key: str) -> int | None:
    """A number, or a list of the same number for every layer."""
    found = gguf.metadata.get(f"{gguf.metadata.get('general.architecture')}.{key}")
    if found is None:
        return None
    values = np.unique(np.atleast_1d(found))
    if len(values) != 1:
        raise ArtifactUnsupported(
            f"{gguf.path}: {key} differs between layers ({values[:4].tolist()}), expected one "
            "value; choose another model"
        )
    if not np.issubdtype(values.dtype, np.integer) or not 0 < int(values[0]) < 1 << 31:
        raise ArtifactCorrupt(f"{gguf.path}: {key} is {values[0]!r}, expected a positive number")
    return int(values[0])


def _eps(gguf: GgufFile, key: str) -> float:
    value = gguf.value("{arch}.attention." + key, float)
    if value is None:
        raise _absent(gguf, "attention." + key)
    # the file holds a float32 of a decimal: 1e-5 comes back as 9.999999747378752e-06
    return float(f"{value:.6g}")


def _vocab_size(gguf: GgufFile) -> int:
    info = gguf.tensors.get("token_embd.weight")
    if info is None or len(info.shape) != 2:
        raise ArtifactCorrupt(
            f"{gguf.path} has no token_embd.weight matrix; it is no complete language model"
        )
    return info.rows


def _absent(gguf: GgufFile, key: str) -> ArtifactCorrupt:
    return ArtifactCorrupt(
        f"{gguf.path}: {gguf.metadata.get('general.architecture')}.{key} is missing; "
        "convert the model again"
    )
