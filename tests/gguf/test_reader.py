"""The header: equal to the library's own reader, and strict with hostile bytes."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.errors import ArtifactCorrupt, ArtifactError, ArtifactMissing, ArtifactUnsupported
from tests.gguf.builders import F16_FIELDS, Q, random_blocks, write
from toolchain.sources.gguf import GgufFile

KEYS = {
    "general.name": "Tiny \u00e9",
    "x.number": 7,
    "x.real": 0.25,
    "x.flag": True,
    "x.texts": ["a", "", "\u65e5"],
    "x.numbers": [1, 2, 3],
    "x.reals": [0.5, -1.5],
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kinds = [k for k in F16_FIELDS if k.value]
    return write(
        tmp_path_factory.mktemp("gguf") / "tiny.gguf",
        keys=KEYS,
        floats={"f": np.arange(6, dtype=np.float32).reshape(2, 3), "v": np.ones(5, np.float32)},
        blocks={k.name: (random_blocks(k, 3, 512), k) for k in kinds},
    )


def test_equals_the_librarys_reader(tiny: Path) -> None:
    ours, theirs = GgufFile(tiny), GGUFReader(tiny)
    for key, field in theirs.fields.items():
        if not key.startswith("GGUF."):
            value = ours.metadata[key]
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents()
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for tensor in theirs.tensors:
        info = ours.tensors[tensor.name]
        assert info.shape == tuple(tensor.shape.tolist()[::-1])
        assert (info.kind, info.offset) == (tensor.tensor_type, tensor.data_offset)
        assert ours.blocks(tensor.name).tobytes() == tensor.data.tobytes()


def test_typed_values(tiny: Path) -> None:
    file = GgufFile(tiny)
    assert file.value("x.number", float) == 7.0
    assert file.value("x.absent", int, 3) == 3
    assert file.value("general.architecture", str) == "llama"
    with pytest.raises(ArtifactCorrupt, match=r"x\.number holds 7, expected str"):
        file.value("x.number", str)
    with pytest.raises(ArtifactCorrupt, match=r"x\.flag holds True, expected int"):
        file.value("x.flag", int)


def test_every_truncation_is_typed(tiny: Path, tmp_path: Path) -> None:
    whole = tiny.read_bytes()
    end = max(t.offset + t.num_bytes for t in GgufFile(tiny).tensors.values())
    cut = tmp_path / "cut.gguf"
    for size in [*range(400), *range(400, end, 997), end - 1]:
        cut.write_bytes(whole[:size])
        with pytest.raises(ArtifactCorrupt) as caught:
            GgufFile(cut)
        assert "\n" not in str(caught.value)


@settings(max_examples=300)
@given(st.integers(0, 1200), st.integers(0, 255))
def test_a_changed_byte_is_read_or_typed(tiny: Path, at: int, value: int) -> None:
    raw = bytearray(tiny.read_bytes())
    raw[at] = value
    other = tiny.with_name("changed.gguf")
    other.write_bytes(raw)
    with contextlib.suppress(ArtifactError):
        file = GgufFile(other)
        for name in file.tensors:
            file.blocks(name)


def text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def head(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
    return text(name) + shape + struct.pack("<IQ", kind, offset)


HOSTILE = {
    "magic": (b"GGML" + bytes(40), ArtifactCorrupt, "expected b'GGUF'"),
    "empty": (b"", ArtifactCorrupt, "expected b'GGUF'"),
    "version 1": (head(version=1), ArtifactUnsupported, "version 1"),
    "big endian": (head(version=3 << 24), ArtifactUnsupported, "big-endian"),
    "tensors": (head(tensors=1 << 60), ArtifactCorrupt, "claims"),
    "keys": (head(keys=1 << 40), ArtifactCorrupt, "claims"),
    "long key": (head(keys=1) + struct.pack("<Q", 1 << 62), ArtifactCorrupt, "a key"),
    "value type": (head(keys=1) + text("k") + b"\x63\0\0\0", ArtifactCorrupt, "value type 99"),
    "long string": (
        head(keys=1) + text("k") + struct.pack("<IQ", 8, 1 << 50), ArtifactCorrupt, "needs",
    ),
    "long array": (
        head(keys=1) + text("k") + struct.pack("<IIQ", 9, 4, 1 << 61), ArtifactCorrupt, "needs",
    ),
    "many strings": (
        head(keys=1) + text("k") + struct.pack("<IIQ", 9, 8, 1 << 33), ArtifactCorrupt, "strings",
    ),
    "nested arrays": (
        head(keys=1) + text("k") + struct.pack("<IIQ", 9, 9, 1), ArtifactCorrupt, "of arrays",
    ),
    "not UTF-8": (head(keys=1) + struct.pack("<Q", 1) + b"\xff" + bytes(8), ArtifactCorrupt, "UTF"),
    "twice": (
        head(keys=2) + (text("k") + struct.pack("<IB", 0, 1)) * 2, ArtifactCorrupt, "twice",
    ),
    "rank": (head(tensors=1) + tensor("t", (1,) * 5), ArtifactCorrupt, "5 dimensions"),
    "shape": (head(tensors=1) + tensor("t", (1 << 40, 1 << 40)), ArtifactCorrupt, "impossible"),
    "zero": (head(tensors=1) + tensor("t", (0,)), ArtifactCorrupt, "impossible"),
    "block type": (head(tensors=1) + tensor("t", (32,), 999), ArtifactUnsupported, "type 999"),
    "columns": (head(tensors=1) + tensor("t", (33,), 8), ArtifactCorrupt, "multiple of 32"),
    "offset": (head(tensors=1) + tensor("t", (1,), 0, 3) + bytes(99), ArtifactCorrupt, "lies at"),
    "data": (head(tensors=1) + tensor("t", (1 << 20,)), ArtifactCorrupt, "truncated"),
    "overlap": (
        head(tensors=2) + tensor("a", (64,)) + tensor("b", (64,), 0, 32) + bytes(999),
        ArtifactCorrupt, "lies at 32",
    ),
    "same name": (
        head(tensors=2) + tensor("a", (8,)) + tensor("a", (8,), 0, 32) + bytes(999),
        ArtifactCorrupt, "same name",
    ),
    "alignment": (
        head(keys=1) + text("general.alignment") + struct.pack("<II", 4, 0),
        ArtifactCorrupt, "power of two",
    ),
    "split": (
        head(keys=1) + text("split.count") + struct.pack("<IH", 2, 3),
        ArtifactUnsupported, "one part",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files(case: str, tmp_path: Path) -> None:
    raw, error, match = HOSTILE[case]
    file = tmp_path / "hostile.gguf"
    file.write_bytes(raw)
    with pytest.raises(error, match=match) as caught:
        GgufFile(file)
    assert "\n" not in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissing, match="cannot be opened"):
        GgufFile(tmp_path / "absent.gguf")
    with pytest.raises(ArtifactError):
        GgufFile(tmp_path)


def test_the_library_still_names_the_types() -> None:
    assert Q.Q4_1.value == 3
