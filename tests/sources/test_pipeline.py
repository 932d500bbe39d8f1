"""The pipeline that is read, lowered and run, against sentence-transformers itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import modules as st

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported
from runtime_py.program import Activation, PoolMode
from tests.lowering.running import run
from tests.models import HIDDEN, add_sentence_transformers, build_model, edit_json
from toolchain.export import OnnxModel, export_onnx
from toolchain.lowering import lower
from toolchain.sources import resolve
from toolchain.sources.pipeline import Dense, LayerNorm, Normalize, Pooling, read_pipeline

TEXTS = ["hello world", "x", "a flock of birds in flight, and the large cage they fly in!"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model("bert", tmp_path_factory.mktemp("models") / "bert")


@pytest.fixture(scope="module")
def graph(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> OnnxModel:
    return export_onnx(resolve(str(bert)), tmp_path_factory.mktemp("onnx"))


@pytest.fixture
def copy(bert: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bert, tmp_path / "model"))


def pool(mode: str | tuple[str, ...]) -> Any:
    return st.Pooling(HIDDEN, pooling_mode=mode)  # type: ignore[arg-type]


def dense(size: int, activation: Any, *, bias: bool = True, width: int = HIDDEN) -> Any:
    torch.manual_seed(3)
    return st.Dense(width, size, bias=bias, activation_function=activation)


def layer_norm() -> Any:
    torch.manual_seed(4)
    module = st.LayerNorm(HIDDEN)
    with torch.no_grad():
        for p in module.parameters():
            p.add_(torch.randn_like(p))
    return module


MATRIX: dict[str, Any] = {
    "mean": lambda: [pool("mean")],
    "cls": lambda: [pool("cls")],
    "max": lambda: [pool("max")],
    "last": lambda: [pool("lasttoken")],
    "mean-sqrt-len": lambda: [pool("mean_sqrt_len_tokens")],
    "weighted-mean": lambda: [pool("weightedmean")],
    "mean+Normalize": lambda: [pool("mean"), st.Normalize()],
    "mean+Dense+Normalize": lambda: [
        pool("mean"),
        dense(16, torch.nn.Tanh()),
        st.Normalize(),
    ],
    "two-Dense": lambda: [
        pool("cls"),
        dense(20, torch.nn.GELU(), bias=False),
        dense(12, torch.nn.Identity(), width=20),
    ],
    "concatenated": lambda: [pool(("mean", "cls", "max"))],
    "concatenated+Dense": lambda: [
        pool(("cls", "mean")),
        dense(8, torch.nn.ReLU(), width=2 * HIDDEN),
    ],
    "LayerNorm": lambda: [pool("mean"), layer_norm(), st.Normalize()],
    "Dropout": lambda: [pool("mean"), st.Dropout(0.5)],
}


@pytest.mark.parametrize("name", MATRIX)
def test_E1_pipeline_equals_sentence_transformers(name: str, copy: Path, graph: OnnxModel) -> None:
    folder = add_sentence_transformers(copy, MATRIX[name]())
    reference = SentenceTransformer(str(folder), device="cpu")
    want = reference.encode(TEXTS, convert_to_numpy=True)

    pipeline = read_pipeline(resolve(str(folder)))
    lowered = lower(graph.path, pipeline)

    ids = [reference.tokenizer(t)["input_ids"] for t in TEXTS]
    got = run(lowered, ids)
    assert got.shape == want.shape == (len(TEXTS), pipeline.dimensions)
    np.testing.assert_allclose(got, want, atol=1e-5, rtol=0)
    cosines = (got * want).sum(1) / np.linalg.norm(got, axis=1) / np.linalg.norm(want, axis=1)
    assert cosines.min() >= 0.9999


def test_E1_modules_are_read_field_by_field(copy: Path) -> None:
    modules = [pool(("max", "mean")), dense(16, torch.nn.SiLU(), width=2 * HIDDEN), st.Normalize()]
    pipeline = read_pipeline(resolve(str(add_sentence_transformers(copy, modules))))
    first, second, third = pipeline.modules
    assert first == Pooling((PoolMode.MAX, PoolMode.MEAN))
    assert isinstance(second, Dense)
    assert second.weight.shape == (16, 2 * HIDDEN)
    assert second.activation is Activation.SILU
    assert isinstance(third, Normalize)
    assert pipeline.normalized
    assert pipeline.dimensions == 16
    assert pipeline.pooling == ("max", "mean")


def test_E1_legacy_pooling_flags(copy: Path) -> None:
    folder = add_sentence_transformers(copy, [pool("mean")])
    config = {
        "word_embedding_dimension": HIDDEN,
        "pooling_mode_cls_token": True,
        "pooling_mode_mean_tokens": True,
        "pooling_mode_max_tokens": False,
    }
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    assert read_pipeline(resolve(str(folder))).pooling == ("cls", "mean")


def test_E1_plain_directory_is_pooled_by_the_mean_and_says_so(bert: Path) -> None:
    pipeline = read_pipeline(resolve(str(bert)))
    assert pipeline.modules == (Pooling((PoolMode.MEAN,)),)
    assert not pipeline.normalized
    assert any("mean pooling" in note for note in pipeline.notes)


@pytest.mark.parametrize("kind", ["WordEmbeddings", "CNN", "models.LSTM", "WeightedLayerPooling"])
def test_E1_unknown_module_is_an_error_never_a_guess(kind: str, copy: Path) -> None:
    folder = add_sentence_transformers(copy, [pool("mean"), st.Normalize()])
    modules = json.loads((folder / "modules.json").read_text())
    modules[2]["type"] = f"sentence_transformers.{kind}"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ArtifactUnsupported, match=f"{kind}.*supported: Transformer, Pooling"):
        read_pipeline(resolve(str(folder)))


def test_custom_module_class_is_not_taken_for_ours(copy: Path) -> None:
    folder = add_sentence_transformers(copy, [pool("mean")])
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "my_code.Pooling"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ArtifactUnsupported, match=r"my_code\.Pooling"):
        read_pipeline(resolve(str(folder)))


def test_prompts_and_similarity(copy: Path) -> None:
    folder = add_sentence_transformers(
        copy,
        [pool("mean")],
        prompts={"query": "query: ", "passage": "passage: "},
        default_prompt_name="query",
        similarity_fn_name="dot",
    )
    edit_json(folder / "1_Pooling" / "config.json", include_prompt=False)
    pipeline = read_pipeline(resolve(str(folder)))
    assert pipeline.prompts == {"query": "query: ", "passage": "passage: "} | {
        k: v for k, v in pipeline.prompts.items() if k not in ("query", "passage")
    }
    assert pipeline.default_prompt_name == "query"
    assert pipeline.similarity == "dot"
    assert pipeline.include_prompt is False
    assert pipeline.manifest()["prompts"]["query"] == "query: "


def test_default_prompt_that_does_not_exist(copy: Path) -> None:
    folder = add_sentence_transformers(copy, [pool("mean")])
    edit_json(folder / "config_sentence_transformers.json", default_prompt_name="nothing")
    with pytest.raises(ArtifactCorrupt, match="default_prompt_name 'nothing'"):
        read_pipeline(resolve(str(folder)))


def test_damaged_head_files(copy: Path) -> None:
    folder = add_sentence_transformers(copy, [pool("mean"), dense(16, torch.nn.Tanh())])
    weights = folder / "2_Dense" / "model.safetensors"
    original = weights.read_bytes()
    weights.write_bytes(original[:50])
    with pytest.raises(ArtifactCorrupt, match="2_Dense cannot be read"):
        read_pipeline(resolve(str(folder)))
    weights.unlink()
    with pytest.raises(ArtifactMissing, match="2_Dense holds no weights"):
        read_pipeline(resolve(str(folder)))
    weights.write_bytes(original)
    edit_json(folder / "2_Dense" / "config.json", out_features=99)
    with pytest.raises(ArtifactCorrupt, match="to 99"):
        read_pipeline(resolve(str(folder)))
    edit_json(folder / "2_Dense" / "config.json", out_features=16, activation_function="os.system")
    with pytest.raises(ArtifactUnsupported, match=r"activation 'os\.system'"):
        read_pipeline(resolve(str(folder)))
    (folder / "1_Pooling" / "config.json").write_text("{")
    with pytest.raises(ArtifactCorrupt, match="not valid JSON"):
        read_pipeline(resolve(str(folder)))
    (folder / "1_Pooling" / "config.json").unlink()
    with pytest.raises(ArtifactMissing, match=r"config\.json does not exist"):
        read_pipeline(resolve(str(folder)))


def test_pickled_dense_weights_load_without_running_code(copy: Path) -> None:
    folder = add_sentence_transformers(copy, [pool("mean"), dense(16, torch.nn.Tanh())])
    before = read_pipeline(resolve(str(folder))).modules[1]
    from safetensors.torch import load_file

    state = load_file(folder / "2_Dense" / "model.safetensors")
    (folder / "2_Dense" / "model.safetensors").unlink()
    torch.save(state, folder / "2_Dense" / "pytorch_model.bin")
    after = read_pipeline(resolve(str(folder))).modules[1]
    assert isinstance(before, Dense)
    assert isinstance(after, Dense)
    np.testing.assert_array_equal(before.weight, after.weight)

    class Bomb:
        def __reduce__(self) -> Any:
            return (Path.touch, (folder / "exploded",))

    torch.save({"linear.weight": Bomb()}, folder / "2_Dense" / "pytorch_model.bin")
    with pytest.raises(ArtifactCorrupt, match="cannot be read"):
        read_pipeline(resolve(str(folder)))
    assert not (folder / "exploded").exists()


def test_layer_norm_is_read(copy: Path) -> None:
    pipeline = read_pipeline(
        resolve(str(add_sentence_transformers(copy, [pool("mean"), layer_norm()])))
    )
    assert isinstance(pipeline.modules[1], LayerNorm)
    assert pipeline.modules[1].eps == 1e-5
