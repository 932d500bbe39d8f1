"""Damaged and hostile artifacts: a typed error before any inference, never anything else."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.artifact import Artifact
from runtime_py.artifact.safetensors import header_bytes, parse_header
from runtime_py.errors import (
    ArtifactCorrupt,
    ArtifactError,
    ArtifactMissing,
    ArtifactUnsupported,
)
from runtime_py.program import Program, validate
from tests.artifact.small import read_manifest, reseal, write_manifest

SHARD = "weights-00002-of"


def shard(folder: Path) -> Path:
    return next(folder.glob(SHARD + "*"))


def read_everything(folder: Path, *, verify: bool = True) -> None:
    read_weights(Artifact.open(folder, verify=verify))


def refuses_in_one_line_or_accepts(action: Callable[[], object]) -> None:
    """Any other exception than an `ArtifactError` fails the test."""
    message = ""
    try:
        action()
    except ArtifactError as e:
        message = str(e)
    assert "\n" not in message


def read_weights(artifact: Artifact) -> None:
    for i in range(len(artifact.program.tensors)):
        for _ in artifact.weights.iter_rows(i, 1 << 20):
            pass


def test_E10_a_missing_file_is_named(pristine: Path, copies: Callable[[], Path]) -> None:
    for name in sorted(f.name for f in pristine.iterdir()):
        folder = copies()
        (folder / name).unlink()
        with pytest.raises(ArtifactMissing, match=name):
            Artifact.open(folder)


def test_E10_truncation_at_every_structural_border(
    pristine: Path, copies: Callable[[], Path]
) -> None:
    for file in sorted(pristine.iterdir()):
        data = file.read_bytes()
        header = struct.unpack("<Q", data[:8])[0] if "weights" in file.name else 0
        borders = {0, 1, 4, 7, 8, 63, 64, 8 + header, 9 + header, len(data) // 2, len(data) - 1}
        folder = copies()
        for cut in sorted(b for b in borders if b < len(data)):
            (folder / file.name).write_bytes(data[:cut])
            for verify in (True, False):
                with pytest.raises((ArtifactCorrupt, ArtifactMissing), match=r"\w") as e:
                    read_everything(folder, verify=verify)
                assert file.name in str(e.value)
                assert "\n" not in str(e.value)


@settings(max_examples=60)
@given(data=st.data())
def test_E10_any_flipped_bit_is_found_by_the_hash(
    data: st.DataObject, pristine: Path, copies: Callable[[], Path]
) -> None:
    name = data.draw(st.sampled_from(sorted(read_manifest(pristine)["files"])))
    content = bytearray((pristine / name).read_bytes())
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    folder = copies()
    (folder / name).write_bytes(content)
    with pytest.raises(ArtifactCorrupt, match="sha256") as e:
        Artifact.open(folder)
    assert name in str(e.value)


@settings(max_examples=80)
@given(data=st.data())
def test_damage_under_a_matching_hash_never_escapes_as_another_error(
    data: st.DataObject, pristine: Path, copies: Callable[[], Path]
) -> None:
    """Whoever writes the files can write the hashes too: structure must hold by itself."""
    name = data.draw(st.sampled_from(sorted(read_manifest(pristine)["files"])))
    content = bytearray((pristine / name).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(content), 4096) - 1))
        content[at] = data.draw(st.integers(0, 255))
    folder = copies()
    (folder / name).write_bytes(content)
    reseal(folder)
    refuses_in_one_line_or_accepts(lambda: read_everything(folder))


@settings(max_examples=150)
@given(data=st.data())
def test_any_manifest_gives_a_manifest_or_a_typed_error(
    data: st.DataObject, pristine: Path, copies: Callable[[], Path]
) -> None:
    manifest = read_manifest(pristine)
    values = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=5),
        st.just(10**400),
        st.lists(st.integers(), max_size=2),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    )
    target: Any = manifest
    while True:
        key = data.draw(st.sampled_from(sorted(target)))
        inner = target[key]
        if isinstance(inner, dict) and inner and data.draw(st.booleans()):
            target = inner
            continue
        if data.draw(st.booleans()):
            del target[key]
        else:
            target[key] = data.draw(values)
        break
    folder = copies()
    write_manifest(folder, manifest)
    refuses_in_one_line_or_accepts(lambda: Artifact.open(folder, verify=False))


@pytest.mark.parametrize(
    "name",
    ["../evil", "/etc/passwd", "a/b", "a\\b", "..", ".hidden", "", "manifest.json", "x" * 200],
)
def test_file_names_cannot_leave_the_folder(artifact_copy: Path, name: str) -> None:
    manifest = read_manifest(artifact_copy)
    manifest["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    write_manifest(artifact_copy, manifest)
    with pytest.raises(ArtifactCorrupt, match="plain file name"):
        Artifact.open(artifact_copy)


def test_duplicate_keys_are_refused(artifact_copy: Path) -> None:
    text = (artifact_copy / "manifest.json").read_text()
    (artifact_copy / "manifest.json").write_text('{"format": "volery", ' + text[1:])
    with pytest.raises(ArtifactCorrupt, match="twice"):
        Artifact.open(artifact_copy)


def test_a_newer_version_is_named(artifact_copy: Path) -> None:
    manifest = read_manifest(artifact_copy)
    manifest["format_version"] = 2
    write_manifest(artifact_copy, manifest)
    with pytest.raises(ArtifactUnsupported, match="format_version 2"):
        Artifact.open(artifact_copy)


@pytest.mark.parametrize(
    "text",
    ["<!DOCTYPE html><html><body>404</body></html>", "\ufeff \n<html lang='en'>not found</html>"],
)
def test_M11_a_page_instead_of_a_file(artifact_copy: Path, text: str) -> None:
    original = (artifact_copy / "manifest.json").read_bytes()
    (artifact_copy / "manifest.json").write_text(text, encoding="utf-8")
    with pytest.raises(ArtifactCorrupt, match="HTML page"):
        Artifact.open(artifact_copy)
    (artifact_copy / "manifest.json").write_bytes(original)
    shard(artifact_copy).write_text(text, encoding="utf-8")
    with pytest.raises(ArtifactCorrupt, match="HTML page"):
        Artifact.open(artifact_copy)


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", '"x"', "{", "[" * 100_000, '{"format": NaN}', '{"a": 1' + "0" * 5000 + "}"],
)
def test_json_that_is_no_manifest(artifact_copy: Path, content: str) -> None:
    (artifact_copy / "manifest.json").write_text(content)
    with pytest.raises(ArtifactCorrupt, match=r"manifest\.json"):
        Artifact.open(artifact_copy)


def test_mixed_exports_are_refused(artifact_copy: Path, pristine: Path) -> None:
    program = Program.decode((pristine / "program.bin").read_bytes())
    fewer = Program(
        program.slots,
        program.tensors[:-1],
        tuple(op for op in program.ops if len(program.tensors) - 1 not in op.tensors),
        program.output_slot,
        program.vocab_size,
        program.max_positions,
    )
    (artifact_copy / "program.bin").write_bytes(validate(fewer).encode())
    reseal(artifact_copy)
    with pytest.raises(ArtifactCorrupt, match="does not use"):
        Artifact.open(artifact_copy)


def test_a_part_in_two_shards_is_refused(artifact_copy: Path) -> None:
    first, second = sorted(artifact_copy.glob("weights-*"))[:2]
    second.write_bytes(first.read_bytes())
    reseal(artifact_copy)
    with pytest.raises(ArtifactCorrupt, match="two shards"):
        Artifact.open(artifact_copy)


def header_of(entries: object, data_bytes: int = 8) -> tuple[bytes, int]:
    text = entries.encode() if isinstance(entries, str) else json.dumps(entries).encode()
    return text, 8 + len(text) + data_bytes


GOOD = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"a": {**GOOD, "data_offsets": [0, 4]}}, "8 bytes apart"),
        ({"a": {**GOOD, "data_offsets": [8, 16]}}, "expected integers in"),
        ({"a": {**GOOD, "data_offsets": [0, 2**64]}}, "expected integers in"),
        ({"a": {**GOOD, "data_offsets": [-8, 0]}}, "expected integers in"),
        ({"a": {**GOOD, "data_offsets": [0, 8, 16]}}, "at most 2 items"),
        ({"a": {**GOOD, "data_offsets": [8, 0]}}, "8 bytes apart"),
        ({"a": {**GOOD, "shape": [2**31, 2**31, 2**31, 2**31]}}, "bytes apart"),
        ({"a": {**GOOD, "shape": [2.0]}}, "expected integers"),
        ({"a": {**GOOD, "shape": [0]}}, "expected integers"),
        ({"a": {**GOOD, "shape": [True, 2]}}, "expected integers"),
        ({"a": {**GOOD, "dtype": "F64"}}, "expected one of"),
        ({"a": GOOD, "b": GOOD}, "gaps or overlap"),
        ({}, "its tensors end at"),
        ({"a": 5}, "expected an object"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "data_offsets is missing"),
        ("[]", "expected an object"),
        ('{"a":' + json.dumps(GOOD) + ',"a":' + json.dumps(GOOD) + "}", "twice"),
    ],
)
def test_hostile_safetensors_headers(entries: object, match: str) -> None:
    data, size = header_of(entries)
    with pytest.raises(ArtifactCorrupt, match=match):
        parse_header(data, "x.safetensors", size)


def test_a_gap_between_tensors_is_refused() -> None:
    gap = {"a": {**GOOD, "shape": [1], "data_offsets": [4, 8]}}
    with pytest.raises(ArtifactCorrupt, match="gaps or overlap"):
        parse_header(*(lambda d, n: (d, "x", n))(*header_of(gap)))


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1, 9 << 20, 1000])
def test_header_lengths_are_bounded_before_anything_is_read(length: int) -> None:
    with pytest.raises(ArtifactCorrupt, match="claims a header"):
        header_bytes(struct.pack("<Q", length), "x", 900)


@settings(max_examples=200)
@given(st.binary(max_size=200), st.integers(0, 400))
def test_any_header_bytes_give_entries_or_a_typed_error(data: bytes, extra: int) -> None:
    refuses_in_one_line_or_accepts(lambda: parse_header(data, "x", 8 + len(data) + extra))


def test_claimed_sizes_allocate_nothing(artifact_copy: Path) -> None:
    """A manifest that promises gigabytes is compared with the disk before any buffer."""
    manifest = read_manifest(artifact_copy)
    name = shard(artifact_copy).name
    tracemalloc.start()
    for claimed in (24 << 20, 25 << 20, 1 << 62, 1 << 70):
        manifest["files"][name]["bytes"] = claimed
        write_manifest(artifact_copy, manifest)
        with pytest.raises(ArtifactCorrupt, match="expected"):
            Artifact.open(artifact_copy)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_file_that_shrinks_while_it_is_read(artifact_copy: Path) -> None:
    artifact = Artifact.open(artifact_copy)
    for file in artifact_copy.glob("weights-*"):
        file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ArtifactCorrupt, match="changed while"):
        read_weights(artifact)


def test_E13_goldens_refuse_a_backend_that_computes_something_else(pristine: Path) -> None:
    goldens = Artifact.open(pristine).goldens
    good = [c.embedding for c in goldens.cases]
    assert goldens.check(good, "x") == pytest.approx(1.0)
    orthogonal = [tuple(reversed(v)) for v in good]
    nan = [(float("nan"),) * len(v) for v in good]
    zero = [(0.0,) * len(v) for v in good]
    infinite = [(float("inf"), *v[1:]) for v in good]
    for bad in (orthogonal, nan, zero, infinite):
        with pytest.raises(ArtifactCorrupt, match="refused"):
            goldens.check([good[0], *bad[1:]], "x")
    with pytest.raises(ArtifactCorrupt, match="vectors"):
        goldens.check(good[:-1], "x")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_ids", []),
        ("token_ids", [200]),
        ("token_ids", [-1]),
        ("token_ids", [1] * 65),
        ("embedding", [1.0]),
        ("embedding", ["a"] * 64),
        ("text", 5),
    ],
)
def test_goldens_must_fit_the_program(artifact_copy: Path, field: str, value: object) -> None:
    goldens = json.loads((artifact_copy / "goldens.json").read_text())
    goldens["cases"][0][field] = value
    (artifact_copy / "goldens.json").write_text(json.dumps(goldens))
    reseal(artifact_copy)
    with pytest.raises(ArtifactCorrupt, match=r"goldens\.json"):
        Artifact.open(artifact_copy)
