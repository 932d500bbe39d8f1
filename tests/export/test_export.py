"""Exports: right at every shape, quiet, and with their external data beside them."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper

from runtime_py.errors import ArtifactCorrupt, ArtifactError, ArtifactMissing, InvalidInput
from tests.lowering.running import every_pooling
from tests.models import HIDDEN, build_model
from toolchain.export import OnnxModel, export_onnx
from toolchain.export.graph_file import read_graph
from toolchain.export.repair import repair
from toolchain.export.verify import verify_graph
from toolchain.lowering import lower
from toolchain.sources import ModelSource, resolve

SAMPLE_LENGTH = 5


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> ModelSource:
    return resolve(str(build_model("bert", tmp_path_factory.mktemp("m") / "bert")))


@pytest.fixture(scope="module")
def exported(source: ModelSource, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return export_onnx(source, tmp_path_factory.mktemp("onnx"))


def test_B4_free_shapes_and_no_trace_of_the_sample(
    exported: OnnxModel, source: ModelSource
) -> None:
    model = transformers.AutoModel.from_pretrained(source.path).eval()
    session = ort.InferenceSession(str(exported.path))
    names = {i.name for i in session.get_inputs()}
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (1, 7), (3, 7), (8, 66)):
        ids = rng.integers(5, 200, shape)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        (got,) = session.run(None, {k: v for k, v in feeds.items() if k in names})
        with torch.no_grad():
            want = model(torch.from_numpy(ids)).last_hidden_state.numpy()
        np.testing.assert_allclose(got, want, atol=1e-5)
    ids = np.full((8, 67), 7)  # one more than the position table holds
    feeds = {k: np.ones_like(ids) for k in names} | {"input_ids": ids}
    with pytest.raises(Exception, match=r"Gather|Slice|Add|broadcast|indices"):
        session.run(None, feeds)
    for name, value in _integer_constants(onnx.load(str(exported.path))):
        assert SAMPLE_LENGTH not in value.ravel().tolist() or value.size > 8, name


def _integer_constants(model: onnx.ModelProto) -> list[tuple[str, np.ndarray]]:  # type: ignore[type-arg]
    found = [(t.name, numpy_helper.to_array(t)) for t in model.graph.initializer]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found.append((node.output[0], numpy_helper.to_array(node.attribute[0].t)))
    return [(n, v) for n, v in found if v.dtype.kind == "i"]


def test_B4_graph_with_a_frozen_length_is_refused(source: ModelSource, tmp_path: Path) -> None:
    model = transformers.AutoModel.from_pretrained(source.path).eval()
    frozen = tmp_path / "frozen.onnx"

    class Fixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            h = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            return h.reshape(2, SAMPLE_LENGTH, HIDDEN)

    ids = torch.arange(10).reshape(2, 5)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Fixed().eval(),
            (ids, torch.ones_like(ids)),
            str(frozen),
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state"],
            dynamic_axes={n: {0: "b", 1: "s"} for n in ("input_ids", "attention_mask")},
            dynamo=False,
        )
    with pytest.raises(ArtifactError, match="froze a shape"):
        verify_graph(frozen, model.eval(), task="embed", vocab_size=200, pad_token_id=0)
    with pytest.raises(ArtifactError, match=r"frozen\.onnx does not run at batch"):
        lower(frozen, every_pooling(HIDDEN, 66))


def test_B6_versions_opset_and_difference_are_reported(exported: OnnxModel) -> None:
    assert exported.exporter == "optimum"
    assert exported.opset == 18
    assert {"torch", "transformers", "optimum", "onnx", "onnxruntime"} <= set(exported.versions)
    assert exported.max_abs_diff is not None
    assert exported.max_abs_diff < 1e-4


def test_exporting_is_quiet(
    source: ModelSource, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    export_onnx(source, tmp_path)  # a warning would fail the test
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("optimize", ["none", "ort"])
def test_B1_external_data(optimize: str, source: ModelSource, tmp_path: Path) -> None:
    made = export_onnx(
        source,
        tmp_path / "made",
        optimize=optimize,  # type: ignore[arg-type]
        external_data_bytes=10_000,
    )
    assert {p.name for p in made.path.parent.iterdir()} == {"model.onnx", "model.onnx.data"}
    assert made.path.stat().st_size < made.path.with_name("model.onnx.data").stat().st_size
    moved = Path(shutil.move(tmp_path / "made", tmp_path / "moved")) / "model.onnx"
    lowered = lower(moved, every_pooling(HIDDEN, 66))
    assert len(lowered.weights) == len(lowered.program.tensors)

    data = moved.with_name("model.onnx.data")
    whole = data.read_bytes()
    data.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ArtifactCorrupt, match=r"model\.onnx\.data has \d+ bytes"):
        lower(moved, every_pooling(HIDDEN, 66))
    data.unlink()
    with pytest.raises(ArtifactMissing, match=r"in model\.onnx\.data, which is not beside it"):
        lower(moved, every_pooling(HIDDEN, 66))


def test_external_data_outside_the_folder_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"0" * 64)
    tensor = numpy_helper.from_array(np.ones(16, np.float32), "w")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../secret")
    (tmp_path / "in").mkdir()
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [16])],
        [tensor],
    )
    path = tmp_path / "in" / "m.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with pytest.raises(ArtifactCorrupt, match="expected a file beside the graph"):
        read_graph(path)


def test_damaged_graphs(exported: OnnxModel, tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match="does not exist"):
        read_graph(tmp_path / "none.onnx")
    bad = tmp_path / "bad.onnx"
    for data in (b"", b"not protobuf at all", exported.path.read_bytes()[:5000]):
        bad.write_bytes(data)
        with pytest.raises(ArtifactCorrupt, match=r"bad\.onnx"):
            read_graph(bad)


def test_given_graph_is_returned_as_it_is(exported: OnnxModel, tmp_path: Path) -> None:
    shutil.copy(exported.path, tmp_path / "model.onnx")
    (tmp_path / "tokenizer.json").write_text("{}")
    given = export_onnx(resolve(str(tmp_path)), tmp_path / "out")
    assert given.path == tmp_path / "model.onnx"
    assert (given.exporter, given.opset) == ("given", 18)


def test_weights_that_do_not_fit_the_model(source: ModelSource, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(source.path, tmp_path / "m"))
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:1000])
    with pytest.raises(ArtifactCorrupt, match="cannot be loaded"):
        export_onnx(resolve(str(folder)), tmp_path / "o")

    from safetensors.torch import load_file, save_file

    weights.write_bytes(whole)
    state = load_file(weights)
    del state["encoder.layer.1.output.dense.weight"]
    save_file(state, weights, metadata={"format": "pt"})
    with pytest.raises(ArtifactCorrupt, match=r"lack 1 tensors .*layer\.1\.output\.dense\.weight"):
        export_onnx(resolve(str(folder)), tmp_path / "o")


@pytest.mark.parametrize(
    "options", [{"exporter": "magic"}, {"opset": 11}, {"opset": 99}, {"optimize": "O3"}]
)
def test_bad_options(options: dict[str, object], source: ModelSource, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="expected"):
        export_onnx(source, tmp_path, **options)  # type: ignore[arg-type]


def test_rotary_tables_are_expanded_to_the_batch_once() -> None:
    node = helper.make_node("RotaryEmbedding", ["x", "cos", "sin"], ["y"])
    infos = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (
            ("x", ["b", 2, "s", 4]),
            ("cos", [1, "s", 2]),
            ("sin", [1, "s", 2]),
            ("y", None),
        )
    ]
    graph = helper.make_graph([node], "g", infos[:3], infos[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    model.ir_version = 10
    repaired = repair(repair(model))
    assert sum(n.op_type == "Expand" for n in repaired.graph.node) == 2
    session = ort.InferenceSession(repaired.SerializeToString())
    x = np.random.default_rng(0).normal(size=(3, 2, 5, 4)).astype(np.float32)
    angle = np.arange(5)[None, :, None] * np.array([1.0, 0.1])
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    (got,) = session.run(None, {"x": x, "cos": cos, "sin": sin})
    a, b = x[..., :2], x[..., 2:]
    want = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    np.testing.assert_allclose(got, want, atol=1e-6)
