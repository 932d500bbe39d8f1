"""A small artifact on disk, written by the real packer, to be read and attacked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from runtime_py.artifact.manifest import MANIFEST
from tests.quantize.models import bert_program, random_weights
from toolchain.pack.artifact import memory
from toolchain.pack.goldens import goldens_json
from toolchain.pack.shards import write_shards
from toolchain.quantize import QuantizedModel, find_scheme, quantize
from toolchain.verify.measure import memory_weights

VOCAB, POSITIONS = 200, 64


def small_model(scheme: str = "i8", seed: int = 0) -> QuantizedModel:
    weights = random_weights(np.random.default_rng(seed), vocab=VOCAB, positions=POSITIONS)
    return quantize(bert_program(weights, heads=4), weights, find_scheme(scheme))


def fake_ids(texts: object) -> list[list[int]]:
    """Ids for the golden texts; this model has no tokenizer of its own."""
    return [[2, *(ord(c) % VOCAB for c in str(t)[:30]), 3] for t in texts]  # type: ignore[attr-defined]


def write_small(folder: Path, model: QuantizedModel, max_bytes: int = 24 << 20) -> Path:
    """An artifact of ``model``, with shards of at most ``max_bytes``."""
    folder.mkdir(parents=True)
    program = model.program
    (folder / "program.bin").write_bytes(program.encode())
    shards = write_shards(folder, program, model.parts, max_bytes)
    (folder / "tokenizer.json").write_text("{}")
    goldens = goldens_json(program, memory_weights(model), fake_ids, 0.999)
    (folder / "goldens.json").write_bytes(goldens)
    manifest = {
        "format": "volery",
        "format_version": 1,
        "created_by": "tests",
        "model": {"id": "small", "architecture": "bert", "license": None, "revision": None},
        "tasks": ["embed"],
        "limits": {
            "max_tokens": POSITIONS,
            "max_tokens_source": "config.json",
            "max_positions": POSITIONS,
            "vocab_size": VOCAB,
        },
        "embedding": {
            "dimensions": program.output.width,
            "normalized": True,
            "pooling": ["mean"],
            "include_prompt": True,
            "prompts": {"query": "query: "},
            "default_prompt_name": None,
            "similarity": "cosine",
        },
        "quantization": {"name": "i8", "linear": "I8B32", "embedding": "I8R", "activations": "i8"},
        "numerics": None,
        "memory": memory(program, sum(p.nbytes for p in model.parts.values())),
        "cost_profile": {"host": "h", "threads": 1, "coefficients_ns": {"num_tokens": 5.0}},
        "files": {},
    }
    (folder / MANIFEST).write_text(json.dumps(manifest))
    reseal(folder, ["program.bin", *shards, "tokenizer.json", "goldens.json"])
    return folder


def read_manifest(folder: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return manifest


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest))


def reseal(folder: Path, names: list[str] | None = None) -> None:
    """Make the manifest's sizes and hashes those of the files: an attacker can."""
    manifest = read_manifest(folder)
    manifest["files"] = {
        name: {
            "bytes": (folder / name).stat().st_size,
            "sha256": hashlib.sha256((folder / name).read_bytes()).hexdigest(),
        }
        for name in names or manifest["files"]
    }
    write_manifest(folder, manifest)
