"""Tiny causal language models with random weights, one per thing that families do differently.

No two dimensions coincide, windows are shorter than the prompts of the tests, and every
weight is random: a bias of zeros hides a bias that is never added.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

VOCAB, HIDDEN, LAYERS, POSITIONS = 96, 32, 2, 64

_SHARED = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 44,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": 0,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_GEMMA = {"head_dim": 16, "query_pre_attn_scalar": 24, "sliding_window": 6}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": True},
    "llama-llama3": {"model_type": "llama", "rope_scaling": _LLAMA3, "num_key_value_heads": 1},
    "llama-linear": {
        "model_type": "llama",
        "rope_scaling": {"rope_type": "linear", "factor": 4.0},
        "attention_bias": True,
        "mlp_bias": True,
    },
    "mistral": {"model_type": "mistral", "sliding_window": 7},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2-yarn": {"model_type": "qwen2", "rope_scaling": _YARN},
    "qwen2-dynamic": {
        "model_type": "qwen2",
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "gemma": {"model_type": "gemma", "head_dim": 16, "tie_word_embeddings": True},
    "gemma2": {
        "model_type": "gemma2",
        "attn_logit_softcapping": 3.0,
        "final_logit_softcapping": 5.0,
        "tie_word_embeddings": True,
        **_GEMMA,
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": True,
        "rope_theta": 1e6,
        **_GEMMA,
    },
    "gpt2": {
        "model_type": "gpt2", "n_layer": LAYERS, "n_head": 4, "n_embd": HIDDEN,
        "n_positions": POSITIONS, "n_inner": 44,
    },
    "gpt-neox": {"model_type": "gpt_neox", "rotary_pct": 0.25, "use_parallel_residual": True},
    "gpt-neox-serial": {
        "model_type": "gpt_neox", "rotary_pct": 0.5, "use_parallel_residual": False,
    },
    "phi": {"model_type": "phi", "partial_rotary_factor": 0.5},
}  # fmt: skip


def build_decoder(family: str, folder: Path, *, seed: int = 0, positions: int = POSITIONS) -> Path:
    """Save a random ``family`` model to ``folder``, without a tokenizer."""
    options = _SHARED | CONFIGS[family]
    for name in ("max_position_embeddings", "n_positions"):
        if name in options:
            options[name] = positions
    config = AutoConfig.for_model(**options)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_norm = p.ndim == 1 and name.endswith("weight")
            spread = 0.3 if p.ndim == 1 else 0.2
            # Gemma stores its norms' weights less one
            centre = 1.0 if is_norm and "gemma" not in family else 0.0
            p.copy_(torch.randn_like(p) * spread + centre)
    model.save_pretrained(folder)
    return folder


SPECIAL = ["<pad>", "<eos>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)


def build_chat_decoder(family: str, folder: Path, *, seed: int = 0, positions: int = 160) -> Path:
    """The same with a tokenizer (one token a character), a chat template and an eos.

    Args:
        positions: of the model: room for prompts, which are long in characters.
    """
    build_decoder(family, folder, seed=seed, positions=positions)
    vocab = {w: i for i, w in enumerate(SPECIAL)}
    vocab |= {chr(c): i for i, c in enumerate((10, *range(32, 123)), len(SPECIAL))}
    assert len(vocab) == VOCAB
    fast = Tokenizer(models.WordLevel(vocab, unk_token="?"))
    fast.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    fast.decoder = decoders.Fuse()
    fast.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="<pad>", eos_token="<eos>", unk_token="?"
    )
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    generation = {"eos_token_id": [1], "pad_token_id": 0}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder
