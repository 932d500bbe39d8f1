"""What is written is what is read."""

from __future__ import annotations

import hashlib
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from runtime_py.artifact import Artifact
from runtime_py.artifact.manifest import PIECE_BYTES, Manifest
from runtime_py.errors import ArtifactCorrupt, ArtifactMissing
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import ROW_MULTIPLE
from runtime_py.loading import check_goldens
from tests.artifact.small import read_manifest, small_model, write_manifest, write_small
from toolchain.pack.artifact import file_entry


@pytest.mark.parametrize("scheme", ["f32", "f16", "i8", "i4"])
@pytest.mark.parametrize("max_bytes", [20_000, 24 << 20])
def test_rows_come_back_in_every_scheme_and_shard_size(
    tmp_path: Path, scheme: str, max_bytes: int
) -> None:
    model = small_model(scheme)
    artifact = Artifact.open(write_small(tmp_path / "a", model, max_bytes))
    assert artifact.program.encode() == model.program.encode()
    for i, tensor in enumerate(artifact.program.tensors):
        for range_bytes in (1, 3000, 1 << 30):
            rows = list(artifact.weights.iter_rows(i, range_bytes))
            assert [r.row0 for r in rows] == list(np.cumsum([0, *(r.rows for r in rows[:-1])]))
            assert all(r.rows % ROW_MULTIPLE == 0 for r in rows[:-1])
            assert sum(r.rows for r in rows) == tensor.shape[0]
            fields = ("data", "scale", "min")[: len(tensor.parts)]
            for part, field in zip(tensor.parts, fields, strict=True):
                joined = b"".join(bytes(getattr(r, field)) for r in rows)
                assert joined == model.parts[part].tobytes(), (part, range_bytes)


def test_shards_are_safetensors_that_the_library_reads(pristine: Path) -> None:
    artifact = Artifact.open(pristine)
    shards = artifact.manifest.shards
    assert len(shards) > 2
    entries = {}
    for name in shards:
        entries |= safetensors.numpy.load_file(pristine / name)
    continued = sorted(n for n in entries if n.startswith(("word#", "word.scale#")))
    assert continued
    word = artifact.program.tensors[0]
    assert word.name == "word"
    pieces = [entries["word"], *(entries[n] for n in continued if n.startswith("word#"))]
    scales = [
        entries["word.scale"],
        *(entries[n] for n in continued if n.startswith("word.scale#")),
    ]
    decoded = np.concatenate(pieces).astype(np.float32) * np.concatenate(scales)[:, None]
    np.testing.assert_array_equal(decoded, artifact.weights.numpy(0))


def test_a_shard_is_never_held_whole(tmp_path: Path) -> None:
    folder = write_small(tmp_path / "a", small_model("f32"))
    weights = sum(f.stat().st_size for f in folder.glob("weights-*"))
    tracemalloc.start()
    artifact = Artifact.open(folder)
    tracemalloc.reset_peak()
    base = tracemalloc.get_traced_memory()[0]
    for i in range(len(artifact.program.tensors)):
        for _ in artifact.weights.iter_rows(i, 8192):
            pass
    peak = tracemalloc.get_traced_memory()[1] - base
    tracemalloc.stop()
    assert weights > 400_000
    assert peak < 60_000


def test_goldens_hold_on_the_reference(pristine: Path) -> None:
    artifact = Artifact.open(pristine)
    executor = ReferenceExecutor.from_weights(artifact.program, artifact.weights)
    assert check_goldens(artifact, executor) > 0.9999999


def test_unknown_names_have_no_path(pristine: Path) -> None:
    artifact = Artifact.open(pristine)
    assert artifact.path("tokenizer.json") == pristine / "tokenizer.json"
    with pytest.raises(ArtifactMissing, match="chat_template"):
        artifact.path("chat_template.jinja")


def test_manifest_is_typed(pristine: Path) -> None:
    m = Artifact.open(pristine).manifest
    assert m.limits.max_tokens == 64
    assert m.embedding is not None
    assert m.embedding.prompts == {"query": "query: "}
    assert m.numerics is None
    assert m.cost_profile is not None
    assert m.cost_profile.coefficients_ns == {"num_tokens": 5.0}
    assert m.total_bytes == sum(
        f.stat().st_size for f in pristine.iterdir() if f.name != "manifest.json"
    )


def test_long_files_have_the_hashes_of_their_pieces(tmp_path: Path) -> None:
    data = bytes(range(251)) * 10_000  # two pieces and a rest
    for size in (0, 1, PIECE_BYTES, PIECE_BYTES + 1, len(data)):
        (tmp_path / "file").write_bytes(data[:size])
        entry = file_entry(tmp_path / "file")
        assert entry["bytes"] == size
        assert entry["sha256"] == hashlib.sha256(data[:size]).hexdigest()
        parts = [data[at : min(at + PIECE_BYTES, size)] for at in range(0, size, PIECE_BYTES)]
        expected = [hashlib.sha256(part).hexdigest() for part in parts]
        assert entry.get("pieces", expected) == expected
        assert ("pieces" in entry) == (size > PIECE_BYTES)


def test_pieces_in_the_manifest(pristine: Path, tmp_path: Path) -> None:
    """They are as many as the file has; an artifact may have none."""
    manifest = read_manifest(pristine)
    name = "tokenizer.json"
    assert Manifest.parse((pristine / "manifest.json").read_bytes()).files[name].pieces == ()
    good = [manifest["files"][name]["sha256"]]
    for pieces in (good, [], [*good, *good], ["abc"], "abc", [7]):
        manifest["files"][name]["pieces"] = pieces
        write_manifest(tmp_path, manifest)
        data = (tmp_path / "manifest.json").read_bytes()
        if pieces is good:
            assert Manifest.parse(data).files[name].pieces == tuple(good)
            continue
        with pytest.raises(ArtifactCorrupt, match="pieces is "):
            Manifest.parse(data)
