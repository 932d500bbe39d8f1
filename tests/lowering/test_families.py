"""Every encoder family, through every exporter, against PyTorch on ragged sequences."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from runtime_py.program import OpKind
from tests.lowering.running import every_pooling, pooled, random_sequences, run
from tests.models import FAMILIES, HIDDEN, build_model
from toolchain.export import export_onnx
from toolchain.lowering import lower
from toolchain.sources import resolve
from toolchain.sources.pipeline import read_pipeline

WAYS = {
    "optimum": {"exporter": "optimum"},
    "dynamo18": {"exporter": "dynamo", "opset": 18},
    "dynamo23": {"exporter": "dynamo", "opset": 23},
    "ort": {"exporter": "optimum", "optimize": "ort"},
}
# Exports through dynamo take seconds each; these repeat what a relative already shows.
SAME_GRAPH = {
    ("xlm-roberta", "dynamo18"),
    ("xlm-roberta", "dynamo23"),
    ("bert-pooler", "dynamo18"),
    ("bert-pooler", "dynamo23"),
    ("albert", "dynamo18"),
    ("electra", "dynamo23"),
}
_BERT_LAYER = "LINEAR ATTENTION LINEAR NORM LINEAR LINEAR NORM"
_MODERN_LAYER = "LINEAR ROPE ATTENTION LINEAR NORM LINEAR GLU LINEAR NORM"
EXPECTED = {
    "albert": f"EMBED NORM LINEAR {_BERT_LAYER} {_BERT_LAYER}",
    "electra": f"EMBED NORM LINEAR {_BERT_LAYER} {_BERT_LAYER}",
    "modernbert": f"EMBED NORM {_MODERN_LAYER} {_MODERN_LAYER}",
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", FAMILIES)
def test_E1_family_matches_torch_through_every_exporter(
    family: str, way: str, tmp_path: Path
) -> None:
    if (family, way) in SAME_GRAPH:
        pytest.skip("writes the same graph as a relative that runs")
    folder = build_model(family, tmp_path / "model")
    source = resolve(str(folder))
    own = read_pipeline(source)
    onnx = export_onnx(source, tmp_path / "onnx", **WAYS[way])
    pipeline = every_pooling(HIDDEN, own.max_positions, pad=own.pad_token_id or 0)

    lowered = lower(onnx.path, pipeline)

    kinds = " ".join(o.kind.name for o in lowered.program.ops if o.kind is not OpKind.POOL)
    assert kinds == EXPECTED.get(family, f"EMBED NORM {_BERT_LAYER} {_BERT_LAYER}")
    vocab = lowered.program.vocab_size
    # longer than any window, up to the last position, and one token
    sequences = random_sequences((1, 2, 7, 33, own.max_positions), vocab)
    model = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    model = model.double()
    for got, ids in zip(run(lowered, sequences), sequences, strict=True):
        with torch.no_grad():
            want = model(
                input_ids=torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)).long()
            ).last_hidden_state[0]
        np.testing.assert_allclose(got, pooled(want.numpy()), atol=1e-4, rtol=0)


def test_window_and_rotary_bases_of_modernbert_reach_the_program(tmp_path: Path) -> None:
    source = resolve(str(build_model("modernbert", tmp_path / "model")))
    lowered = lower(export_onnx(source, tmp_path / "onnx").path, read_pipeline(source))
    ops = lowered.program.ops
    windows = [o.uint("window") for o in ops if o.kind is OpKind.ATTENTION]
    assert windows == [0, 9]  # local_attention=16 sees 8 to each side
    ropes = [o for o in ops if o.kind is OpKind.ROPE]
    assert [o.uint("heads") for o in ropes] == [8, 8]  # queries and keys in one op
    bases = [lowered.weights[lowered.program.tensors[o.tensor("inv_freq")].name][1] for o in ropes]
    np.testing.assert_allclose(bases, [160000.0**-0.25, 10000.0**-0.25], rtol=1e-5)


def test_weights_keep_the_names_of_the_model(tmp_path: Path) -> None:
    source = resolve(str(build_model("bert", tmp_path / "model")))
    lowered = lower(export_onnx(source, tmp_path / "onnx").path, read_pipeline(source))
    names = {t.name for t in lowered.program.tensors}
    assert {
        "embeddings.word_embeddings.weight",
        "encoder.layer.0.attention.self.qkv.weight",
        "encoder.layer.1.attention.self.qkv.bias",
        "encoder.layer.1.output.LayerNorm.weight",
    } <= names
    assert set(lowered.weights) == names
    for t in lowered.program.tensors:
        w = lowered.weights[t.name]
        assert w.dtype == np.float32
        assert w.shape == t.shape
        assert w.flags.c_contiguous
