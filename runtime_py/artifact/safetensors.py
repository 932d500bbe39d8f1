"""Headers of safetensors files, read without trust.

A safetensors file is a u64 little-endian header length, a JSON header that maps names
to ``{"dtype", "shape", "data_offsets": [begin, end]}``, and the data. Every offset is
checked against the file before a byte of data is handed out: entries tile the data
without gaps or overlap, and each has exactly the bytes of its shape.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from runtime_py.artifact.strict_json import Record, parse
from runtime_py.errors import ArtifactCorrupt

MAX_HEADER_BYTES = 8 << 20
MAX_NAME_CHARS = 512
ITEM_BYTES = {"F32": 4, "F16": 2, "I8": 1, "U8": 1}
"""The dtypes that artifacts use, with bytes per element."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a file; ``begin`` and ``end`` are absolute file offsets."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def header_bytes(prefix: bytes, file: str, file_bytes: int) -> int:
    """Length of the JSON header, from the file's first 8 bytes.

    Raises:
        ArtifactCorrupt: the file cannot hold such a header.
    """
    if len(prefix) < 8:
        raise ArtifactCorrupt(
            f"{file} has {file_bytes} bytes, a safetensors file has at least 8; "
            "download it anew or export the model again"
        )
    length: int = struct.unpack("<Q", prefix[:8])[0]
    if not 2 <= length <= min(MAX_HEADER_BYTES, file_bytes - 8):
        raise ArtifactCorrupt(
            f"{file} claims a header of {length} bytes, expected 2 to "
            f"{max(2, min(MAX_HEADER_BYTES, file_bytes - 8))}; download it anew or export "
            "the model again"
        )
    return length


def parse_header(data: bytes, file: str, file_bytes: int) -> dict[str, Entry]:
    """Entries of the JSON header ``data`` of a file with ``file_bytes`` bytes in all.

    Raises:
        ArtifactCorrupt: the header breaks the format.
    """
    data_start = 8 + len(data)
    data_bytes = file_bytes - data_start
    header = Record(parse(data, file, MAX_HEADER_BYTES), file)
    entries: dict[str, Entry] = {}
    for name in header:
        if name == "__metadata__":
            continue
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise ArtifactCorrupt(f"{file}: a tensor name has {len(name)} characters")
        r = header.record(name)
        dtype = r.text("dtype")
        if dtype not in ITEM_BYTES:
            raise r.error("dtype", dtype, f"one of {sorted(ITEM_BYTES)}")
        shape = r.integers("shape", 1, 1 << 32, 4)
        offsets = r.integers("data_offsets", 0, data_bytes, 2)
        size = ITEM_BYTES[dtype]
        for dim in shape:
            size *= dim
        if len(offsets) != 2 or offsets[1] - offsets[0] != size:
            raise r.error("data_offsets", list(offsets), f"two offsets {size} bytes apart")
        entries[name] = Entry(dtype, shape, data_start + offsets[0], data_start + offsets[1])
    at = data_start
    for name, entry in sorted(entries.items(), key=lambda item: item[1].begin):
        if entry.begin != at:
            raise ArtifactCorrupt(
                f"{file}: tensor {name!r} starts at byte {entry.begin}, expected {at}; "
                "tensors must follow each other without gaps or overlap"
            )
        at = entry.end
    if at != file_bytes:
        raise ArtifactCorrupt(
            f"{file} has {file_bytes} bytes, its tensors end at {at}; "
            "download it anew or export the model again"
        )
    return entries
