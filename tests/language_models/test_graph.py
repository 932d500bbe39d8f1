"""The quantized graph on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from runtime_py.errors import ArtifactError, ArtifactMissing
from tests.decoders import VOCAB, build_decoder
from tests.lowering.generating import random_prompts
from toolchain.export import export_onnx
from toolchain.export.quantized_graph import write_quantized_graph
from toolchain.lowering import lower_decoder
from toolchain.quantize.decoder import quantize_decoder
from toolchain.quantize.schemes import find_decoder_scheme
from toolchain.sources import resolve
from toolchain.verify.graph import GraphLogits


def test_B1_external_data_all_the_way(tmp_path: Path) -> None:
    """Weights beside the graph, moved to another folder, quantized; and gone missing."""
    source = resolve(str(build_decoder("mistral", tmp_path / "model")))
    made = export_onnx(source, tmp_path / "first", external_data_bytes=1000)
    folder = (tmp_path / "first").rename(tmp_path / "moved")
    graph = folder / made.path.name
    data = folder / "model.onnx.data"
    assert data.stat().st_size > 20_000
    lowered = lower_decoder(graph, source.config())
    found = quantize_decoder(lowered.program, lowered.weights, find_decoder_scheme("i8"))
    model = found.model
    out = write_quantized_graph(
        graph, tmp_path / "q" / "model.onnx", model.program, model.parts, lowered.weights
    )
    (prompt,) = random_prompts((30,), VOCAB)
    full, eight = GraphLogits(graph)(prompt), GraphLogits(out)(prompt)
    assert 0 < np.abs(full - eight).max() < 0.1 * np.abs(full).max()
    data.unlink()
    with pytest.raises(ArtifactMissing, match=r"model\.onnx\.data"):
        lower_decoder(graph, source.config())


def test_it_holds_codes_and_standard_operators(tmp_path: Path) -> None:
    source = resolve(str(build_decoder("gpt2", tmp_path / "model")))
    made = export_onnx(source, tmp_path / "graph")
    lowered = lower_decoder(made.path, source.config())
    model = quantize_decoder(lowered.program, lowered.weights, find_decoder_scheme("i4")).model
    out = write_quantized_graph(
        made.path, tmp_path / "q.onnx", model.program, model.parts, lowered.weights
    )
    graph = onnx.load(str(out))
    onnx.checker.check_model(graph, full_check=True)
    assert {o.domain for o in graph.opset_import} <= {"", "ai.onnx"}
    floats = [i for i in graph.graph.initializer if i.data_type == onnx.TensorProto.FLOAT]
    assert max(int(np.prod(i.dims)) for i in floats) < 200  # biases and norms
    kinds = {i.data_type for i in graph.graph.initializer}
    assert {onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.FLOAT16} <= kinds


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    source = resolve(str(build_decoder("llama", tmp_path / "model")))
    made = export_onnx(source, tmp_path / "graph")
    lowered = lower_decoder(made.path, source.config())
    weights = dict(lowered.weights)
    weights["layers.1.mlp.down_proj.weight"] = weights["layers.1.mlp.down_proj.weight"] + 1
    model = quantize_decoder(lowered.program, weights, find_decoder_scheme("i8")).model
    with pytest.raises(ArtifactError, match=r"row 0 of 'layers\.1\.mlp\.down_proj\.weight'"):
        write_quantized_graph(made.path, tmp_path / "q.onnx", model.program, model.parts, weights)
