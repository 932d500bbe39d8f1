"""Exports of language models: logits, no cache, from directories and GGUF files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime_py.errors import ArtifactCorrupt, InvalidInput
from tests.decoders import build_decoder
from tests.gguf.test_models import CASES, COMMON, convert, random_model
from toolchain.export import export_onnx
from toolchain.sources import resolve


def graph_logits(path: Path, ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(str(path))
    feeds = {"input_ids": ids, "attention_mask": mask}
    feeds["position_ids"] = np.broadcast_to(np.arange(ids.shape[1]), ids.shape).copy()
    names = {i.name for i in session.get_inputs()}
    (logits,) = session.run(["logits"], {k: v for k, v in feeds.items() if k in names})
    return logits


@pytest.mark.parametrize("case", ["llama tied, linear rope", "gemma2", "gpt2"])
def test_gguf_file_exports_as_the_model_it_was_made_from(case: str, tmp_path: Path) -> None:
    model = random_model(COMMON | CASES[case][1])
    convert(model, tmp_path / "m.gguf", case)
    made = export_onnx(resolve(str(tmp_path / "m.gguf")), tmp_path / "onnx")
    assert made.exporter == "optimum"
    assert made.max_abs_diff is not None
    model.set_attn_implementation("eager")  # the fused one leaves Gemma 2's cap out
    rng = np.random.default_rng(0)
    ids, mask = rng.integers(1, 64, (3, 30)), np.ones((3, 30), np.int64)
    mask[1, 20:] = 0
    with torch.no_grad():
        out = model(input_ids=torch.from_numpy(ids), attention_mask=torch.from_numpy(mask))
    got, want = graph_logits(made.path, ids, mask), out.logits.numpy()
    np.testing.assert_allclose(got[mask == 1], want[mask == 1], atol=1e-4 * np.abs(want).max())


def test_missing_weights_are_not_made_up(tmp_path: Path) -> None:
    folder = build_decoder("qwen2-yarn", tmp_path / "m")
    weights = folder / "model.safetensors"
    state = load_file(weights)
    del state["lm_head.weight"]
    save_file(state, weights, metadata={"format": "pt"})
    with pytest.raises(ArtifactCorrupt, match=r"lack 1 tensors .*lm_head\.weight"):
        export_onnx(resolve(str(folder)), tmp_path / "onnx")


def test_encoder_fusions_are_not_for_decoders(tmp_path: Path) -> None:
    source = resolve(str(build_decoder("llama", tmp_path / "m")))
    with pytest.raises(InvalidInput, match="fuses encoders only"):
        export_onnx(source, tmp_path / "onnx", optimize="ort")
