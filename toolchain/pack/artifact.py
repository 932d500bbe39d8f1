"""Assembles an artifact from its pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime_py.artifact.manifest import (
    FORMAT,
    FORMAT_VERSION,
    GOLDENS,
    MANIFEST,
    PIECE_BYTES,
    PROGRAM,
    TOKENIZER,
)
from runtime_py.program import Program, Rows
from toolchain.pack.folder import atomic_folder
from toolchain.pack.shards import write_shards
from toolchain.quantize import QuantizedModel
from toolchain.sources import ModelSource
from toolchain.sources.architectures import Task

CREATED_BY = "volery 0.1.0"
_SECTIONS: Mapping[Task, str] = {"embed": "embedding", "generate": "generation"}


@dataclass(frozen=True, slots=True)
class Contents:
    """Everything that an artifact is made of.

    Attributes:
        task: "embed" or "generate".
        details: the manifest's section of the task: ``embedding`` or ``generation``.
        quantization, numerics, cost_profile: objects of the manifest; None leaves the
            last two out.
        files: further files, name -> content.
    """

    source: ModelSource
    task: Task
    details: Mapping[str, Any]
    quantization: Mapping[str, str]
    model: QuantizedModel
    max_tokens: int
    max_tokens_source: str
    tokenizer: bytes
    goldens: bytes
    numerics: Mapping[str, Any] | None
    cost_profile: Mapping[str, Any] | None
    files: Mapping[str, bytes] = field(default_factory=dict)


def write_artifact(
    target: Path, contents: Contents, *, force: bool, check: Callable[[Path], object]
) -> int:
    """Write the folder ``target``; it appears complete and checked, or not at all.

    Args:
        check: called with the finished folder before it takes its place; what it raises
            stops the writing.

    Returns:
        Bytes of all files.

    Raises:
        InvalidInput: ``target`` must not be replaced (see `check_target`).
    """
    with atomic_folder(target, force=force) as folder:
        (folder / PROGRAM).write_bytes(contents.model.program.encode())
        shards = write_shards(folder, contents.model.program, contents.model.parts)
        (folder / TOKENIZER).write_bytes(contents.tokenizer)
        (folder / GOLDENS).write_bytes(contents.goldens)
        for name, content in contents.files.items():
            (folder / name).write_bytes(content)
        names = (PROGRAM, *shards, TOKENIZER, GOLDENS, *contents.files)
        files = {name: file_entry(folder / name) for name in names}
        manifest = _manifest(contents, files)
        text = json.dumps(manifest, ensure_ascii=False, indent=1)
        (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")
        check(folder)
        return sum(f.stat().st_size for f in folder.iterdir())


def memory(program: Program, weights_bytes: int) -> dict[str, int]:
    """The manifest's ``memory``: weights, and activations per row of each kind."""
    width = dict.fromkeys(Rows, 0)
    for slot in program.slots:
        width[slot.rows] += slot.width
    sizes = {
        "weights_bytes": weights_bytes,
        "bytes_per_token": 4 * width[Rows.TOKENS],
        "bytes_per_seq": 4 * width[Rows.SEQS],
    }
    if program.is_decoder:
        sizes["bytes_per_wanted"] = 4 * width[Rows.PICKED]
    return sizes


def _manifest(contents: Contents, files: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    source, program = contents.source, contents.model.program
    weights_bytes = sum(int(p.nbytes) for p in contents.model.parts.values())
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "created_by": CREATED_BY,
        "model": {
            "id": source.model_id,
            "architecture": source.architecture,
            "license": source.license,
            "revision": source.revision,
        },
        "tasks": [contents.task],
        "limits": {
            "max_tokens": contents.max_tokens,
            "max_tokens_source": contents.max_tokens_source,
            "max_positions": program.max_positions,
            "vocab_size": program.vocab_size,
        },
        _SECTIONS[contents.task]: contents.details,
        "quantization": contents.quantization,
        "numerics": contents.numerics,
        "memory": memory(program, weights_bytes),
        "cost_profile": contents.cost_profile,
        "files": files,
    }


def file_entry(path: Path) -> dict[str, Any]:
    """What the manifest says about a file: size, hash, and the pieces' where it has several."""
    whole, pieces = hashlib.sha256(), []
    with path.open("rb") as f:
        while piece := f.read(PIECE_BYTES):
            whole.update(piece)
            pieces.append(hashlib.sha256(piece).hexdigest())
    entry = {"bytes": path.stat().st_size, "sha256": whole.hexdigest()}
    return {**entry, "pieces": pieces} if len(pieces) > 1 else entry
