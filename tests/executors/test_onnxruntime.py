"""The ONNX Runtime executor: padding without influence, pooling as sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from runtime_py.errors import ArtifactMissing, ArtifactUnsupported, InvalidInput
from runtime_py.executors.onnxruntime import Dense, EmbeddingSpec, OnnxRuntimeExecutor
from tests.executors.backends import token_graph
from tests.ops.cases import make_step, normal
from tests.ops.cases.encoder import WIDTH

NAMES = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "last": "lasttoken",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "weighted_mean": "weightedmean",
}


def pooled(
    table: np.ndarray, lengths: list[int], modes: list[str], prompt: int | None
) -> np.ndarray:
    """What sentence-transformers' module makes of the padded token vectors."""
    # imported here because it takes seconds
    from sentence_transformers.sentence_transformer.modules import Pooling

    batch = torch.full((len(lengths), max(lengths), WIDTH), 1e6)
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.int64)
    at = 0
    for i, n in enumerate(lengths):
        batch[i, :n] = torch.from_numpy(table[at : at + n])
        mask[i, :n] = 1
        at += n
    module = Pooling(
        WIDTH, pooling_mode=tuple(NAMES[m] for m in modes), include_prompt=prompt is None
    )
    features = {"token_embeddings": batch, "attention_mask": mask}
    if prompt is not None:
        features["prompt_length"] = prompt
    return module(features)["sentence_embedding"].numpy()


@pytest.mark.parametrize("mode", NAMES)
@pytest.mark.parametrize("skip", [0, 2])
def test_E1_pooling_equals_sentence_transformers(mode: str, skip: int, tmp_path: Path) -> None:
    table = token_graph(tmp_path / "m.onnx")
    lengths = [6, 3, 11, 4]
    executor = OnnxRuntimeExecutor.from_onnx(
        tmp_path / "m.onnx", EmbeddingSpec((mode,), normalized=False)
    )
    got = executor.run(make_step(lengths, skips=[skip] * 4)).output
    executor.close()
    wanted = pooled(table, lengths, [mode], skip or None)
    np.testing.assert_allclose(np.asarray(got), wanted, atol=1e-6)


def test_E1_side_by_side_dense_and_normalize(tmp_path: Path) -> None:
    table = token_graph(tmp_path / "m.onnx", TensorProto.INT32)
    weight, bias = normal(2, 16, 2 * WIDTH), normal(3, 16)
    spec = EmbeddingSpec(("mean", "max"), True, (Dense(weight, bias, "tanh"),))
    executor = OnnxRuntimeExecutor.from_onnx(tmp_path / "m.onnx", spec)
    got = executor.run(make_step([6, 2])).output
    executor.close()
    x = torch.from_numpy(pooled(table, [6, 2], ["mean", "max"], None))
    y = torch.tanh(torch.nn.functional.linear(x, torch.from_numpy(weight), torch.from_numpy(bias)))
    wanted = torch.nn.functional.normalize(y, dim=1).numpy()
    np.testing.assert_allclose(np.asarray(got), wanted, atol=1e-6)


def test_token_vectors_without_an_embedding(tmp_path: Path) -> None:
    table = token_graph(tmp_path / "m.onnx")
    executor = OnnxRuntimeExecutor.from_onnx(tmp_path / "m.onnx")
    result = executor.run(make_step([4, 1, 9]))
    executor.close()
    np.testing.assert_array_equal(np.asarray(result.output), table[:14])
    assert result.statuses == b"\0\0\0"


def test_refusals_are_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    with pytest.raises(ArtifactMissing, match="no ONNX file"):
        OnnxRuntimeExecutor.from_onnx(path)
    path.write_bytes(b"not a graph")
    with pytest.raises(ArtifactUnsupported, match="cannot load") as caught:
        OnnxRuntimeExecutor.from_onnx(path)
    assert "\n" not in str(caught.value)
    token_graph(path)
    for spec, words in (
        (EmbeddingSpec(("median",)), "unknown pooling 'median'"),
        (EmbeddingSpec(dense=(Dense(np.eye(2, dtype=np.float32), None, "swoosh"),)), "'swoosh'"),
    ):
        with pytest.raises(InvalidInput, match=words):
            OnnxRuntimeExecutor.from_onnx(path, spec)
    with pytest.raises(InvalidInput, match="unknown provider 'Abacus'"):
        OnnxRuntimeExecutor.from_onnx(path, providers=("Abacus",))


def test_a_graph_with_other_inputs_is_refused(tmp_path: Path) -> None:
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, [1, 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3])
    graph = helper.make_graph([helper.make_node("Relu", ["pixels"], ["y"])], "g", [pixels], [out])
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    with pytest.raises(ArtifactUnsupported, match="pixels"):
        OnnxRuntimeExecutor.from_onnx(tmp_path / "m.onnx")


def test_context_is_refused(tmp_path: Path) -> None:
    token_graph(tmp_path / "m.onnx")
    executor = OnnxRuntimeExecutor.from_onnx(tmp_path / "m.onnx")
    with pytest.raises(InvalidInput, match="continues after 3 tokens"):
        executor.run(make_step([2], contexts=[3]))
    executor.close()
