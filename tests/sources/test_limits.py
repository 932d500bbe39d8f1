"""How long a text may be, and which file says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runtime_py.errors import ArtifactCorrupt
from toolchain.sources.pipeline.limits import max_positions, max_tokens


def folder(path: Path, sentence: Any = None, tokenizer: Any = None) -> Path:
    if sentence is not None:
        (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": sentence}))
    if tokenizer is not None:
        (path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": tokenizer}))
    return path


BERT = {"model_type": "bert", "max_position_embeddings": 512}
SENTINEL = 1000000000000000019884624838656


@pytest.mark.parametrize(
    ("sentence", "tokenizer", "config", "expected"),
    [
        (256, 512, BERT, (256, "sentence_bert_config.json")),
        (None, 384, BERT, (384, "tokenizer_config.json")),
        (None, SENTINEL, BERT, (512, "config.json")),
        (None, None, BERT, (512, "config.json")),
        (8192, None, BERT, (512, "config.json")),
        (None, 512, {"model_type": "roberta", "max_position_embeddings": 514}, (512, "tokeni")),
        (None, 2048, {"model_type": "roberta", "max_position_embeddings": 514}, (512, "config")),
        (128, SENTINEL, {"model_type": "modernbert"}, (128, "sentence_bert_config.json")),
        (None, 77, {"model_type": "modernbert"}, (77, "tokenizer_config.json")),
    ],
)
def test_E9_smallest_limit_rules_and_is_named(
    sentence: Any, tokenizer: Any, config: Any, expected: tuple[int, str], tmp_path: Path
) -> None:
    tokens, source = max_tokens(folder(tmp_path, sentence, tokenizer), config)
    assert tokens == expected[0]
    assert source.startswith(expected[1])


def test_E9_positions_exclude_the_rows_of_the_padding_offset() -> None:
    xlm = {"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}
    assert max_positions(xlm) == 512
    assert max_positions({"model_type": "mpnet", "max_position_embeddings": 514}) == 512
    assert max_positions(BERT) == 512
    assert max_positions({"model_type": "x"}) == 0


@pytest.mark.parametrize("value", [0, -1, "many", 1.5, True])
def test_limit_that_is_no_positive_integer(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ArtifactCorrupt, match="expected a positive integer"):
        max_tokens(folder(tmp_path, value), BERT)


def test_no_limit_anywhere(tmp_path: Path) -> None:
    with pytest.raises(ArtifactCorrupt, match="states no length limit"):
        max_tokens(folder(tmp_path, None, SENTINEL), {"model_type": "modernbert"})
