"""Every decoder family, through every exporter, against PyTorch on ragged, chunked prompts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from runtime_py.errors import ArtifactUnsupported
from runtime_py.program import OpKind, Program, Rows, validate
from tests.decoders import CONFIGS, POSITIONS, VOCAB, build_decoder
from tests.lowering.generating import (
    chunked_logits,
    random_prompts,
    torch_logits,
    uncached_logits,
)
from tests.lowering.toy import MaskFunction, Spelling, Toy, distances, export, padding_bias
from tests.models import build_model
from toolchain.export import export_onnx
from toolchain.lowering import LoweredModel, lower_decoder
from toolchain.lowering.graph import Graph
from toolchain.lowering.probe import Prober
from toolchain.sources import resolve

WAYS = {
    "optimum": {"exporter": "optimum"},
    "dynamo18": {"exporter": "dynamo", "opset": 18},
    "dynamo23": {"exporter": "dynamo", "opset": 23},
}
# torch.export takes many seconds per model: these cover its spellings of grouped queries,
# norms per head, windows, caps, two ropes, learned positions and partial ropes
THROUGH_DYNAMO = {
    ("llama", "dynamo18"),
    ("gemma2", "dynamo18"),
    ("qwen3", "dynamo23"),
    ("gemma3", "dynamo23"),
    ("gpt2", "dynamo23"),
    ("gpt-neox", "dynamo23"),
}
CASES = [(f, "optimum") for f in CONFIGS] + sorted(THROUGH_DYNAMO)

_FRONT = "LINEAR ROPE CACHE ATTENTION"
_LLAMA = f"{_FRONT} LINEAR NORM LINEAR GLU LINEAR"
_QWEN3 = _LLAMA.replace("ROPE", "NORM NORM ROPE", 1)
_GEMMA2 = f"{_FRONT} LINEAR NORM NORM LINEAR GLU LINEAR NORM"
_PARALLEL = f"{_FRONT} NORM LINEAR LINEAR LINEAR"
_SERIAL = f"{_FRONT} LINEAR NORM LINEAR LINEAR"
LAYERS = {
    "qwen3": _QWEN3,
    "gemma2": _GEMMA2,
    "gemma3": _GEMMA2.replace("ROPE", "NORM NORM ROPE", 1),
    "gpt2": _SERIAL.replace("ROPE ", ""),
    "gpt-neox": _PARALLEL,
    "gpt-neox-serial": _SERIAL,
    "phi": f"{_FRONT} LINEAR LINEAR LINEAR",
}


def lowered(
    family: str,
    folder: Path,
    way: str = "optimum",
    *,
    cache: bool = True,
    positions: int = POSITIONS,
) -> LoweredModel:
    source = resolve(str(build_decoder(family, folder / "model", positions=positions)))
    made = export_onnx(source, folder / "onnx", **WAYS[way])
    return lower_decoder(made.path, source.config(), cache=cache)


def assert_close(got: list[np.ndarray], want: list[np.ndarray]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, np.abs(b).max()), rtol=0)


@pytest.mark.parametrize(("family", "way"), CASES)
def test_E1_family_matches_torch_whatever_the_chunks(family: str, way: str, tmp_path: Path) -> None:
    model = lowered(family, tmp_path, way)

    kinds = [o.kind.name for o in model.program.ops]
    layer = LAYERS.get(family, _LLAMA)
    cap = " UNARY UNARY" if family == "gemma2" else ""
    rows = [k for k in kinds if k != "ROWS"]
    assert " ".join(rows) == f"EMBED NORM {layer} NORM {layer} NORM LINEAR{cap}"
    # one token, more than a window, more than a block of the cache, every position
    prompts = random_prompts((1, 9, 41, POSITIONS), VOCAB)
    chunks = [[1], [3, 6], [33, 1, 7], [1, 31, 1, POSITIONS - 33]]
    want = torch_logits(tmp_path / "model", prompts)
    assert_close(chunked_logits(model, prompts, chunks), want)


@pytest.mark.parametrize("family", ["mistral", "gemma3", "gpt-neox"])
def test_without_a_cache(family: str, tmp_path: Path) -> None:
    model = lowered(family, tmp_path, cache=False)
    kinds = {o.kind for o in model.program.ops}
    assert not kinds & {OpKind.CACHE, OpKind.ROWS}
    assert model.program.output.rows is Rows.TOKENS
    prompts = random_prompts((1, 20, POSITIONS), VOCAB)
    assert_close(uncached_logits(model, prompts), torch_logits(tmp_path / "model", prompts))


def test_only_wanted_rows_pass_the_last_attention(tmp_path: Path) -> None:
    program = lowered("qwen3", tmp_path).program
    last = max(i for i, o in enumerate(program.ops) if o.kind is OpKind.ATTENTION)
    after = program.ops[last + 1 :]
    assert [o.kind.name for o in after[:2]] == ["ROWS", "ROWS"]  # its result, the residual
    assert all(program.slots[o.out].rows is Rows.PICKED for o in after)
    assert program.output == program.slots[after[-1].out]
    assert program.output.width == VOCAB


def test_slots_are_written_in_place_by_norms_of_heads_only(tmp_path: Path) -> None:
    program = lowered("gemma3", tmp_path).program
    for op in program.ops:
        if op.kind is OpKind.NORM and op.uint("columns"):
            assert op.out == op.slot("x")
        else:
            assert op.out not in op.ins
    heads = [o for o in program.ops if o.kind is OpKind.NORM and o.uint("columns")]
    assert [(o.uint("offset"), o.uint("columns"), o.uint("group")) for o in heads[:2]] == [
        (0, 64, 16),
        (64, 32, 16),
    ]
    assert validate(Program.decode(program.encode())) == program


def test_windows_caps_and_scales_reach_the_program(tmp_path: Path) -> None:
    program = lowered("gemma2", tmp_path).program
    attentions = [o for o in program.ops if o.kind is OpKind.ATTENTION]
    assert [o.uint("window") for o in attentions] == [6, 0]
    assert [o.uint("cache") for o in attentions] == [1, 2]
    assert [o.float("softcap") for o in attentions] == [3.0, 3.0]
    np.testing.assert_allclose([o.float("scale") for o in attentions], 24**-0.5, rtol=1e-6)
    embed = next(o for o in program.ops if o.kind is OpKind.EMBED)
    assert embed.float("scale") == np.float32(32**0.5)
    caps = [o.float("alpha") for o in program.ops if o.kind is OpKind.UNARY]
    np.testing.assert_allclose(caps, [1 / 5, 5], rtol=1e-6)


@pytest.mark.parametrize(
    ("family", "scale"), [("qwen2-yarn", 0.1 * np.log(4) + 1), ("llama-llama3", 1.0)]
)
def test_scaled_ropes_are_frequencies_and_a_scale(
    family: str, scale: float, tmp_path: Path
) -> None:
    model = lowered(family, tmp_path)
    rope = next(o for o in model.program.ops if o.kind is OpKind.ROPE)
    np.testing.assert_allclose(rope.float("scale"), scale, rtol=1e-6)
    freq = model.weights[model.program.tensors[rope.tensor("inv_freq")].name]
    own = AutoModelForCausalLM.from_pretrained(tmp_path / "model").model.rotary_emb.inv_freq
    assert np.array_equal(freq, own.numpy())
    assert not np.allclose(freq, 10000.0 ** -(np.arange(0, 8, 2) / 8), rtol=0.01)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt-neox", "phi"])
def test_rows_of_weights_are_the_models_own(family: str, tmp_path: Path) -> None:
    model = lowered(family, tmp_path)
    known = set()
    for p in AutoModelForCausalLM.from_pretrained(tmp_path / "model").parameters():
        known.update(r.tobytes() for r in p.detach().numpy() if p.ndim == 2)
    matrices = [w for w in model.weights.values() if w.ndim == 2]
    assert all(r.tobytes() in known for w in matrices for r in w)


def test_tied_embedding_is_stored_once(tmp_path: Path) -> None:
    model = lowered("llama", tmp_path)
    embed, head = model.program.ops[0], model.program.ops[-1]
    assert embed.tensor("table") == head.tensor("weight")
    assert [n for n, w in model.weights.items() if len(w) == VOCAB] == ["embed_tokens.weight"]
    assert {"layers.0.self_attn.qkv.weight", "layers.1.mlp.gate_up.weight"} <= set(model.weights)


def test_an_encoder_is_no_decoder(tmp_path: Path) -> None:
    source = resolve(str(build_model("bert", tmp_path / "model")))
    made = export_onnx(source, tmp_path / "onnx")
    with pytest.raises(ArtifactUnsupported, match="wide, expected logits of"):
        lower_decoder(made.path, source.config())


def test_graph_of_another_vocabulary(tmp_path: Path) -> None:
    source = resolve(str(build_decoder("llama", tmp_path / "model")))
    made = export_onnx(source, tmp_path / "onnx")
    with pytest.raises(ArtifactUnsupported, match=f"has {VOCAB} rows, expected 90"):
        lower_decoder(made.path, source.config() | {"vocab_size": 90})


class ToyLanguageModel(Toy):
    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return super().forward(input_ids, attention_mask) @ self.words.weight.T


def slopes(mask: torch.Tensor) -> torch.Tensor:
    """Causal, with a penalty per distance."""
    key = distances(mask)
    return torch.where(key > 0, float("-inf"), key * 0.1)[None, None]


@pytest.mark.parametrize(
    ("mask", "why"), [(padding_bias, "is not causal"), (slopes, "a bias per distance")]
)
def test_attention_that_a_cache_cannot_serve(mask: MaskFunction, why: str, tmp_path: Path) -> None:
    graph = export(ToyLanguageModel(Spelling(mask=mask)), tmp_path / "toy.onnx")
    config = {"vocab_size": 90, "max_position_embeddings": 40, "sliding_window": None}
    with pytest.raises(ArtifactUnsupported, match=why):
        lower_decoder(graph, config)


def test_window_longer_than_the_usual_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGS["mistral"], "sliding_window", 300)
    model = lowered("mistral", tmp_path, positions=512)
    windows = [o.uint("window") for o in model.program.ops if o.kind is OpKind.ATTENTION]
    assert windows == [300, 300]


def test_masks_and_tables_are_evaluated_for_the_first_layer_only(tmp_path: Path) -> None:
    source = resolve(str(build_decoder("llama", tmp_path / "model")))
    graph = Graph(export_onnx(source, tmp_path / "onnx").path)
    prober = Prober(graph, VOCAB, 0)
    masks = [n.inputs[1] for n in graph.nodes if n.op == "Add" and "self_attn/Add_2" in n.name]
    assert len(set(masks)) == 2  # spelled once per layer, cut to the length of its keys
    assert {prober.first_like(m) for m in masks} == {masks[0]}
