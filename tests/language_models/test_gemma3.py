"""Gemma 3 270M from its Q4_K_M file, where its four packages are installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime_py.artifact import Artifact, LanguageNumerics
from tests.gguf.test_gemma3 import file, pytestmark  # noqa: F401 - the file's fixture
from toolchain.pipeline import export_model
from toolchain.sources.gguf import GgufFile

GEMMA_SECONDS = 1800


@pytest.mark.timeout(GEMMA_SECONDS)
def test_eight_bits_lose_what_the_import_loses(file: GgufFile, tmp_path: Path) -> None:  # noqa: F811
    """Q5_0 and Q8_0 are exact; scales of Q4_K and codes of Q6_K are rounded."""
    report = export_model(str(file.path), tmp_path / "gemma", scheme="i8")
    artifact = Artifact.open(tmp_path / "gemma")
    numerics = artifact.manifest.numerics
    assert isinstance(numerics, LanguageNumerics)
    assert numerics.exact_tensors > 0
    assert numerics.rounded_tensors > 0
    assert 0 < numerics.worst_weight_error < 0.01
    assert numerics.top1 >= 0.97
    assert abs(numerics.perplexity / numerics.perplexity_f32 - 1) <= 0.01
    assert report.total_bytes < 330e6
    generation = artifact.manifest.generation
    assert generation is not None
    assert generation.eos_token_ids == (1, 106)
    assert generation.bos_token == "<bos>"
