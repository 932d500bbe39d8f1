"""Tiny models of every architecture: Hugging Face -> GGUF -> Hugging Face, bit for bit.

The forward conversion below is written from the description of the format, apart from
the code under test, which has to undo it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from tests.gguf.builders import F32, write
from toolchain.sources.gguf import GgufFile, hf_config, license_of, load_into, name_of
from toolchain.sources.gguf.rope import llama3_factors

HEADS, KV_HEADS, LAYERS, VOCAB = 4, 2, 7, 64

COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.3,
}


def keys(arch: str, eps: str = "layer_norm_rms_epsilon", **more: Any) -> dict[str, Any]:
    plain = {
        "block_count": LAYERS,
        "context_length": 128,
        "embedding_length": 32,
        "feed_forward_length": 48,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        f"attention.{eps}": 1e-5,
        **more,
    }
    return {f"{arch}.{key}": value for key, value in plain.items()}


DECODER = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.dense": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.fc1": "ffn_up",
    "mlp.fc2": "ffn_down",
    "model.final_layernorm": "output_norm",
}
GEMMA = DECODER | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
GPT2 = {
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
    "lm_head": "output",
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
NEOX = {
    "gpt_neox.embed_in": "token_embd",
    "gpt_neox.final_layer_norm": "output_norm",
    "embed_out": "output",
    "input_layernorm": "attn_norm",
    "attention.query_key_value": "attn_qkv",
    "attention.dense": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}


def gguf_name(name: str, names: dict[str, str]) -> str:
    module, _, part = name.rpartition(".")
    for prefix in ("model.layers.", "transformer.h.", "gpt_neox.layers."):
        if module.startswith(prefix):
            layer, _, module = module.removeprefix(prefix).partition(".")
            return f"blk.{layer}.{names[module]}.{part}"
    return f"{names[module]}.{part}"


def same(name: str, values: F32) -> F32:
    return values


def pairs(name: str, values: F32) -> F32:
    """Row r of the first half and row r of the second half become neighbours."""
    if "attn_q." not in name and "attn_k." not in name:
        return values
    heads = HEADS if "attn_q." in name else KV_HEADS
    half = values.shape[0] // heads // 2
    order = [
        h * 2 * half + part * half + r for h in range(heads) for r in range(half) for part in (0, 1)
    ]
    return values[order]


def plus_one(name: str, values: F32) -> F32:
    return values + np.float32(1) if name.endswith("norm.weight") else values


def turned(name: str, values: F32) -> F32:
    linear = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")
    return values.T if name.endswith(linear) else values


def q_then_k_then_v(name: str, values: F32) -> F32:
    if "attn_qkv" not in name:
        return values
    size = values.shape[0] // HEADS // 3
    order = [
        (h * 3 + part) * size + r for part in range(3) for h in range(HEADS) for r in range(size)
    ]
    return values[order]


Convert = Callable[[str, F32], F32]
GPT = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": 32, "n_positions": 128, "n_inner": 48}
QWEN3_DIM = {"head_dim": 16, "attention.key_length": 16, "attention.value_length": 16}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, str], Convert]] = {
    "llama": (
        "llama", {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 5e5},
        {"rope.freq_base": 5e5, "rope.dimension_count": 8}, DECODER, pairs,
    ),
    "llama tied, linear rope": (
        "llama",
        {"model_type": "llama", "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
         "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}, DECODER, pairs,
    ),
    "llama with biases": (
        "llama", {"model_type": "llama", "rms_norm_eps": 1e-5, "attention_bias": True},
        {}, DECODER, pairs,
    ),
    "llama 3 rope": (
        "llama",
        {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 5e5, "rope_scaling": {
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}},
        {"rope.freq_base": 5e5}, DECODER, pairs,
    ),
    "mistral": (
        "llama", {"model_type": "mistral", "rms_norm_eps": 1e-5, "sliding_window": 5},
        {"attention.sliding_window": 5}, DECODER, pairs,
    ),
    "qwen2, yarn": (
        "qwen2",
        {"model_type": "qwen2", "rms_norm_eps": 1e-5, "rope_scaling": {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
         "rope.scaling.original_context_length": 32}, DECODER, same,
    ),
    "qwen3": (
        "qwen3", {"model_type": "qwen3", "rms_norm_eps": 1e-5, "head_dim": 16},
        {"attention.key_length": 16, "attention.value_length": 16}, DECODER, same,
    ),
    "gemma": (
        "gemma", {"model_type": "gemma", "rms_norm_eps": 1e-5, "head_dim": 16},
        {"attention.key_length": 16}, DECODER, plus_one,
    ),
    "gemma2": (
        "gemma2",
        {"model_type": "gemma2", "rms_norm_eps": 1e-5, "head_dim": 16, "sliding_window": 5,
         "query_pre_attn_scalar": 16, "attn_logit_softcapping": 20.0,
         "final_logit_softcapping": 10.0},
        {"attention.key_length": 16, "attention.sliding_window": 5,
         "attn_logit_softcapping": 20.0, "final_logit_softcapping": 10.0}, GEMMA, plus_one,
    ),
    "gemma3": (
        "gemma3",
        {"model_type": "gemma3_text", "rms_norm_eps": 1e-5, "head_dim": 16,
         "sliding_window": 5, "query_pre_attn_scalar": 16, "rope_theta": 1e6},
        {"attention.key_length": 16, "attention.sliding_window": 5, "rope.freq_base": 1e6},
        GEMMA, plus_one,
    ),
    "gpt2": ("gpt2", {"model_type": "gpt2", **GPT}, {}, GPT2, turned),
    "gpt-neox": (
        "gptneox",
        {"model_type": "gpt_neox", "rotary_pct": 0.25, "layer_norm_eps": 1e-5,
         "use_parallel_residual": False},
        {"rope.dimension_count": 2, "use_parallel_residual": False}, NEOX, q_then_k_then_v,
    ),
    "phi": (
        "phi2",
        {"model_type": "phi", "partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5},
        {"rope.dimension_count": 4}, DECODER, same,
    ),
}  # fmt: skip


def random_model(config: dict[str, Any]) -> torch.nn.Module:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.ndim == 1:  # norms and biases begin as ones and zeros
                # eighths, so that Gemma's + 1 - 1 loses nothing
                value.copy_(torch.randint(-8, 9, value.shape) / 8 + ("norm" in name))
    return model


def convert(model: torch.nn.Module, path: Path, case: str) -> GgufFile:
    arch, config, more, names, change = CASES[case]
    floats = {
        (target := gguf_name(name, names)): change(target, value.detach().numpy())
        for name, value in model.named_parameters()
    }
    if "llama 3" in case:
        floats["rope_freqs.weight"] = llama3_factors(8, 5e5, 8.0).astype(np.float32)
    eps = "layer_norm_rms_epsilon" if "rms_norm_eps" in config else "layer_norm_epsilon"
    meta = keys(arch, eps, **more)
    if arch in ("gptneox", "gpt2"):
        del meta[f"{arch}.attention.head_count_kv"]
    return GgufFile(write(path, arch, meta | {"general.license": "mit"}, floats))


def rebuilt(file: GgufFile) -> torch.nn.Module:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**hf_config(file))).eval()
    load_into(model, file)
    return model


@pytest.mark.parametrize("case", CASES)
def test_round_trip(case: str, tmp_path: Path) -> None:
    original = random_model(COMMON | CASES[case][1])
    file = convert(original, tmp_path / "m.gguf", case)
    copy = rebuilt(file)
    assert type(copy) is type(original)
    theirs = dict(copy.named_parameters())
    for name, value in original.named_parameters():
        assert torch.equal(theirs[name], value), name
    ids = torch.randint(0, VOCAB, (1, 40))
    with torch.no_grad():
        assert torch.equal(copy(ids).logits, original(ids).logits)


def test_name_and_license(tmp_path: Path) -> None:
    file = GgufFile(write(tmp_path / "a name.gguf", keys={"general.license": "mit"}))
    assert (name_of(file), license_of(file)) == ("a name", "mit")


def test_llama3_factors_are_what_transformers_computes() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = AutoConfig.for_model(**COMMON | CASES["llama 3 rope"][1], head_dim=64)
    theirs, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 5e5 ** -(np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(plain / llama3_factors(64, 5e5, 8.0), theirs.numpy(), rtol=1e-5)


class TestRefusals:
    """Variants and damage, each with one line that says what was found."""

    @staticmethod
    def check(
        tmp_path: Path, match: str, error: type, arch: str = "llama", drop: str = "", **more: Any
    ) -> None:
        meta = {k: v for k, v in keys(arch, **more).items() if not drop or not k.endswith(drop)}
        floats = {"token_embd.weight": np.zeros((VOCAB, 32), np.float32)}
        file = GgufFile(write(tmp_path / "m.gguf", arch, meta, floats))
        with pytest.raises(error, match=match) as caught:
            hf_config(file)
        assert "\n" not in str(caught.value)

    def test_unknown_architecture(self, tmp_path: Path) -> None:
        self.check(tmp_path, "'mamba' is not supported", ArtifactUnsupported, "mamba")

    def test_experts(self, tmp_path: Path) -> None:
        self.check(tmp_path, "mixture of 8 experts", ArtifactUnsupported, expert_count=8)

    def test_layers_that_differ(self, tmp_path: Path) -> None:
        wide = {"attention.head_count_kv": [1, 2, 2]}
        self.check(tmp_path, "differs between layers", ArtifactUnsupported, **wide)

    def test_unknown_rope(self, tmp_path: Path) -> None:
        scaling = {"rope.scaling.type": "longrope"}
        self.check(tmp_path, "'longrope' is not supported", ArtifactUnsupported, **scaling)

    def test_missing_key(self, tmp_path: Path) -> None:
        self.check(tmp_path, "block_count is missing", ArtifactCorrupt, drop="block_count")
        self.check(tmp_path, "epsilon is missing", ArtifactCorrupt, drop="epsilon")

    def test_heads_that_do_not_divide(self, tmp_path: Path) -> None:
        heads = {"attention.head_count_kv": 3}
        self.check(tmp_path, "4 heads of 8 on 3", ArtifactCorrupt, **heads)

    def test_partial_rotary_llama(self, tmp_path: Path) -> None:
        rotary = {"rope.dimension_count": 4}
        self.check(tmp_path, "rotary width 4", ArtifactUnsupported, **rotary)

    def test_wrong_type(self, tmp_path: Path) -> None:
        self.check(tmp_path, "expected int", ArtifactCorrupt, block_count="two")

    def test_foreign_rope_factors(self, tmp_path: Path) -> None:
        floats = {
            "token_embd.weight": np.zeros((VOCAB, 32), np.float32),
            "rope_freqs.weight": np.array([1, 2, 3, 8], np.float32),
        }
        file = GgufFile(write(tmp_path / "m.gguf", "llama", keys("llama"), floats))
        with pytest.raises(ArtifactUnsupported, match="not those of Llama 3"):
            hf_config(file)

    def test_tensors_that_do_not_fit(self, tmp_path: Path) -> None:
        model = random_model(COMMON | CASES["llama"][1])
        for name, value, match in (
            ("blk.0.attn_q.weight", np.zeros((16, 32)), "the model has shape"),
            ("blk.9.attn_q.weight", np.zeros((32, 32)), "no such parameter"),
            ("blk.0.ssm_in.weight", np.zeros((2, 2)), "is unknown for architecture"),
            ("blk.0.output.weight", np.zeros((2, 2)), "is unknown for architecture"),
            ("attn_q.weight", np.zeros((2, 2)), "is unknown for architecture"),
            ("blk.0.attn_q.weight", np.zeros((6, 32)), "do not divide"),
            ("output_norm.weight", np.zeros(32), "parameters are missing"),
        ):
            path = tmp_path / "m.gguf"
            file = GgufFile(write(path, "llama", keys("llama"), {name: value}))
            with pytest.raises((ArtifactCorrupt, ArtifactUnsupported), match=match):
                load_into(model, file)
