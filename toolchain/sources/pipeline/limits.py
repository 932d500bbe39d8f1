"""How long a text may be: the smallest of what a model's files say, and which file says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime_py.errors import ArtifactCorrupt
from toolchain.sources.source import read_json

# transformers writes int(1e30) when a tokenizer has no limit; nothing real comes near this.
NO_LIMIT = 1_000_000

# Families whose position ids start after the padding id, so that the table's first rows
# belong to no position.
_OFFSET_FAMILIES = {
    "roberta",
    "xlm-roberta",
    "camembert",
    "xlm-roberta-xl",
    "roberta-prelayernorm",
    "data2vec-text",
    "xmod",
    "mpnet",
    "esm",
}
_POSITION_KEYS = ("max_position_embeddings", "n_positions", "max_positions")
_SENTENCE_CONFIGS = (
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
)


def sentence_config(folder: Path) -> tuple[str, dict[str, Any]]:
    """The transformer module's own configuration and its file name; empty without one."""
    for name in _SENTENCE_CONFIGS:
        if (folder / name).is_file():
            return name, read_json(folder / name)
    return _SENTENCE_CONFIGS[0], {}


def max_positions(config: dict[str, Any]) -> int:
    """Positions that the model can tell apart; 0 when its configuration sets no limit."""
    for key in _POSITION_KEYS:
        if key in config and config[key] is not None:
            value = _positive(config[key], f"config.json: {key}")
            if config.get("model_type") in _OFFSET_FAMILIES:
                # MPNet numbers from a padding id that is fixed to 1 in its code
                pad = 1 if config["model_type"] == "mpnet" else int(config.get("pad_token_id", 1))
                value -= pad + 1
            return _positive(value, f"config.json: {key} less the padding offset")
    return 0


def max_tokens(folder: Path, config: dict[str, Any]) -> tuple[int, str]:
    """The longest input in tokens, special tokens included, and the file that says so.

    sentence_bert_config.json, then the tokenizer's ``model_max_length``, then the
    positions: the first that is given rules, and no limit may exceed the positions.
    """
    positions = max_positions(config)
    name, own = sentence_config(folder)
    limits: list[tuple[int, str]] = []
    if own.get("max_seq_length") is not None:
        limits.append((_positive(own["max_seq_length"], f"{name}: max_seq_length"), name))
    elif (folder / "tokenizer_config.json").is_file():
        value = read_json(folder / "tokenizer_config.json").get("model_max_length")
        if value is not None and 0 < float(value) < NO_LIMIT:
            limits.append((int(value), "tokenizer_config.json"))
    if positions:
        limits.append((positions, "config.json"))
    if not limits:
        raise ArtifactCorrupt(
            f"{folder} states no length limit; add max_seq_length to sentence_bert_config.json"
        )
    return min(limits, key=lambda limit: limit[0])


def _positive(value: Any, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ArtifactCorrupt(f"{what} is {value!r}, expected a positive integer")
    return value
