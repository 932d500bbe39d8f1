"""A tiny artifact with random weights, cut into many shards, for tests of the loader."""

from __future__ import annotations

import hashlib
import itertools
import json
from array import array
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from runtime_py.executors.base import ExecutorLimits, SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.program import Program, TensorFormat
from tests.ops.cases import decoder as decoders
from tests.ops.cases.encoder import VOCAB, encoder, weights_of

SHARDS = 3
LENGTHS = (1, 7, 33, 64, 150)


def sequences() -> list[list[int]]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, VOCAB, n).tolist() for n in LENGTHS]


def packed(ids: list[list[int]]) -> Step:
    rows, at = [], 0
    for seq in ids:
        rows.append(SeqRow(at, len(seq)))
        at += len(seq)
    return Step(array("i", [i for seq in ids for i in seq]), rows)


def split(parts: dict[str, Any], program: Program) -> list[dict[str, Any]]:
    """Shards in which every tensor of at least 48 rows continues from one to the next."""
    shards: list[dict[str, Any]] = [{} for _ in range(SHARDS)]
    for i, tensor in enumerate(program.tensors):
        rows = tensor.shape[0]
        if rows < 48:
            shards[i % SHARDS].update({part: parts[part] for part in tensor.parts})
            continue
        cuts = [0, 16, 40, rows]
        for j, (begin, end) in enumerate(itertools.pairwise(cuts)):
            suffix = f"#{j}" if j else ""
            for part in tensor.parts:
                shards[j][part + suffix] = np.ascontiguousarray(parts[part][begin:end])
    return shards


def write_manifest(folder: Path, sections: dict[str, Any] | None = None) -> None:
    """List the folder's files as they are now."""
    files = {
        file.name: {
            "bytes": file.stat().st_size,
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
        for file in sorted(folder.iterdir())
        if file.name != "manifest.json"
    }
    manifest = {
        "format": "volery",
        "format_version": 1,
        "limits": {"max_tokens": 256},
        "files": files,
        **(sections or {}),
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_tiny(folder: Path, fmt: TensorFormat) -> Path:
    """Write an encoder's artifact and return its folder."""
    program, parts = encoder(fmt)
    step = packed(sequences())
    truth = ReferenceExecutor.from_weights(program, weights_of(program, parts)).run(step)
    _write(folder, program, parts, sequences(), np.asarray(truth.output))
    write_manifest(folder)
    return folder


def write_tiny_decoder(folder: Path, fmt: TensorFormat, bits: int) -> Path:
    """Write a decoder's artifact and return its folder."""
    program, parts = decoders.decoder(fmt, bits, window=40)
    limits = ExecutorLimits(256, 1, 1, 1, kv_blocks=8, max_wanted=1)
    truth = ReferenceExecutor.from_weights(program, weights_of(program, parts), limits=limits)
    rows = []
    for ids in sequences():
        last = Step(
            array("i", ids),
            [SeqRow(0, len(ids))],
            block_tables=[array("i", range(8))],
            wanted=[len(ids) - 1],
        )
        rows.append(np.asarray(truth.run(last).output)[0])
    _write(folder, program, parts, sequences(), np.array(rows))
    generation = {"max_context": decoders.POSITIONS, "kv_bytes_per_token": 384}
    write_manifest(folder, {"tasks": ["generate"], "generation": generation})
    return folder


def _write(
    folder: Path, program: Program, parts: dict[str, Any], ids: list[list[int]], outputs: Any
) -> None:
    """Everything but the manifest."""
    folder.mkdir(parents=True)
    goldens = {
        "tolerance": {"cosine": 0.9995},
        "cases": [
            {"text": f"text {i}", "token_ids": tokens, "embedding": row.tolist()}
            for i, (tokens, row) in enumerate(zip(ids, outputs, strict=True))
        ],
    }
    (folder / "goldens.json").write_text(json.dumps(goldens))
    (folder / "program.bin").write_bytes(program.encode())
    for i, shard in enumerate(split(parts, program)):
        name = f"weights-{i + 1:05}-of-{SHARDS:05}.safetensors"
        (folder / name).write_bytes(save(shard))
