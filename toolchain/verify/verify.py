"""``toolchain verify``: an artifact on disk is whole and computes its goldens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike

from runtime_py.artifact import Artifact
from runtime_py.artifact.manifest import TOKENIZER
from runtime_py.errors import ArtifactCorrupt
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.generation.loading import check_decoder_goldens
from runtime_py.generation.tokenizer import HFTextTokenizer
from runtime_py.loading import check_goldens
from runtime_py.tokenization import HFTokenizer
from toolchain.verify.backends import wasm_executor


@dataclass(frozen=True, slots=True)
class Verified:
    """What was checked.

    Attributes:
        files, total_bytes: hashed files.
        tensors: tensors found whole in the shards.
        goldens: backend -> worst cosine over the golden texts.
    """

    files: int
    total_bytes: int
    tensors: int
    goldens: Mapping[str, float]


def verify_artifact(path: str | PathLike[str]) -> Verified:
    """Check hashes, structure, tokenizer and goldens.

    Raises:
        ArtifactError: the first thing that is wrong.
    """
    artifact = Artifact.open(path)
    _check_tokenizer(artifact)
    check = check_decoder_goldens if artifact.program.is_decoder else check_goldens
    goldens = {}
    reference = ReferenceExecutor.from_weights(artifact.program, artifact.weights)
    goldens[reference.name] = check(artifact, reference)
    reference.close()
    wasm = wasm_executor(artifact.program, artifact.weights)
    if wasm is not None:
        try:
            goldens[wasm.name] = check(artifact, wasm)
        finally:
            wasm.close()
    manifest = artifact.manifest
    return Verified(
        len(manifest.files), manifest.total_bytes, len(artifact.program.tensors), goldens
    )


def _check_tokenizer(artifact: Artifact) -> None:
    """The tokenizer gives the goldens' ids, and no id that the model lacks."""
    text = artifact.path(TOKENIZER).read_text(encoding="utf-8")
    cases = artifact.goldens.cases
    if artifact.program.is_decoder:
        tokenizer = HFTextTokenizer(text)  # a golden may hold the first ids only
        found = [tokenizer.encode(c.text)[: len(c.token_ids)] for c in cases]
    else:
        limit = artifact.manifest.limits.max_tokens
        found = [e.ids for e in HFTokenizer(text, limit).encode([c.text for c in cases])]
    for case, ids in zip(cases, found, strict=True):
        if tuple(ids) != case.token_ids:
            raise ArtifactCorrupt(
                f"{TOKENIZER} encodes golden text {case.text[:40]!r} as {ids[:8]}, "
                f"expected {list(case.token_ids[:8])}; export the model again"
            )
