"""The whole way for a tiny model, and what the real one must reach."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from runtime_py.artifact import Artifact
from runtime_py.errors import AccuracyGate, ArtifactCorrupt, ArtifactUnsupported, InvalidInput
from tests.models import build_model
from toolchain.pack.tokenizer import tokenizer_json
from toolchain.pipeline import STAGES, build_artifact, export_model
from toolchain.prepare import PreparedModel, prepare_model
from toolchain.quantize.corpus import EVALUATION, texts
from toolchain.sources import resolve
from toolchain.stages import Stages
from toolchain.verify.inspect import inspect_artifact
from toolchain.verify.verify import verify_artifact


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model("bert", tmp_path_factory.mktemp("tiny") / "bert")


@pytest.fixture(scope="module")
def prepared(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    return prepare_model(str(tiny), tmp_path_factory.mktemp("graph"), Stages(None))


def test_export_reports_every_stage_and_writes_what_it_says(tiny: Path, tmp_path: Path) -> None:
    seen: list[tuple[str, float]] = []
    report = export_model(
        str(tiny),
        tmp_path / "out",
        scheme="f32",
        keep_onnx=True,
        max_tokens=20,
        progress=lambda stage, share, remark: seen.append((stage, share)),
    )
    assert [s for s, share in seen if share == 1.0] == list(STAGES)
    assert set(report.seconds) == set(STAGES)
    assert report.onnx_path is not None
    assert report.onnx_path.is_file()
    assert report.numerics.worst_cosine > 0.99999
    artifact = Artifact.open(tmp_path / "out")
    assert artifact.manifest.limits.max_tokens == 20
    assert report.total_bytes == sum(f.stat().st_size for f in (tmp_path / "out").iterdir())
    assert {"reference"} <= set(report.verified.goldens)
    facts = inspect_artifact(tmp_path / "out")
    json.dumps(facts)
    assert sum(t["bytes"] for t in facts["tensors"]) == facts["memory"]["weights_bytes"]
    assert len(facts["ops"]) == len(artifact.program.ops)
    with pytest.raises(InvalidInput, match="--force"):
        export_model(str(tiny), tmp_path / "out")


@pytest.mark.parametrize("bad", [{"max_tokens": 2}, {"max_tokens": 10_000}])
def test_limits_past_the_model_are_refused(
    tiny: Path, tmp_path: Path, bad: Mapping[str, int]
) -> None:
    with pytest.raises(InvalidInput, match="max_tokens"):
        export_model(str(tiny), tmp_path / "out", **bad)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_B2_an_unknown_architecture_is_one_line(tiny: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(tiny, tmp_path / "foo"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "model_type": "foo"}))
    with pytest.raises(ArtifactUnsupported, match="foo") as e:
        export_model(str(model), tmp_path / "out")
    assert "\n" not in str(e.value)
    assert not (tmp_path / "out").exists()


def test_E11_the_gate_stops_a_bad_artifact(prepared: PreparedModel, tmp_path: Path) -> None:
    """The graph says one thing, the program another: nothing is written."""
    wrong = replace(prepared)
    wrong.__dict__["expected"] = np.roll(prepared.expected, 1, axis=1)
    with pytest.raises(AccuracyGate, match="worst cosine"):
        build_artifact(wrong, tmp_path / "out", scheme="i8")
    assert list(tmp_path.iterdir()) == []
    report = build_artifact(wrong, tmp_path / "out", scheme="i8", allow_accuracy_loss=True)
    assert not report.numerics.passed
    numerics = Artifact.open(tmp_path / "out").manifest.numerics
    assert numerics is not None
    assert numerics.worst_cosine < numerics.gate


def test_E13_verify_finds_a_model_that_computes_something_else(
    prepared: PreparedModel, tmp_path: Path
) -> None:
    from tests.artifact.small import reseal

    build_artifact(prepared, tmp_path / "out", scheme="f16", allow_accuracy_loss=True)
    verify_artifact(tmp_path / "out")
    shard = next((tmp_path / "out").glob("weights-*"))
    data = bytearray(shard.read_bytes())
    data[-8000:] = bytes(8000)
    shard.write_bytes(data)
    with pytest.raises(ArtifactCorrupt, match="sha256"):
        verify_artifact(tmp_path / "out")
    reseal(tmp_path / "out")
    with pytest.raises(ArtifactCorrupt, match="golden"):
        verify_artifact(tmp_path / "out")


def test_the_tokenizer_is_minified_and_equal(minilm_source: Path) -> None:
    source = resolve(str(minilm_source))
    data = tokenizer_json(source, lower_case=False, samples=texts(EVALUATION, 50))
    config = json.loads(data)
    assert config["truncation"] is None
    assert config["padding"] is None
    assert len(data) < (minilm_source / "tokenizer.json").stat().st_size
    lowered = Tokenizer.from_str(tokenizer_json(source, lower_case=True, samples=["ÀB"]).decode())
    assert lowered.encode("HELLO").ids == lowered.encode("hello").ids


def test_minilm_meets_the_bars(minilm_artifacts: Mapping[str, Path]) -> None:
    for name, floor, most_bytes in (
        ("f32", 0.99999, 92_000_000),
        ("f16", 0.9999, 46_500_000),
        ("i8", 0.999, 25_000_000),
        ("i4", 0.96, 22_000_000),
    ):
        folder = minilm_artifacts[name]
        numerics = Artifact.open(folder).manifest.numerics
        assert numerics is not None
        assert numerics.worst_cosine >= floor, name
        assert sum(f.stat().st_size for f in folder.iterdir()) <= most_bytes, name
        assert all(f.stat().st_size <= 24 << 20 for f in folder.iterdir())
