"""Open a GGUF file: every length checked before it is trusted, tensors left on disk.

The layout is that of the GGUF specification, versions 2 and 3, little-endian:
magic, version, tensor count, key count, the key/value pairs, the tensor table, and
the tensors' bytes, aligned. The ``gguf`` package knows the block types; its own reader
makes one numpy array per string, which takes seconds for a vocabulary and trusts the
counts, so the header is decoded here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported

MAX_KEYS, MAX_TENSORS = 1 << 16, 1 << 16
MAX_NAME_BYTES, MAX_DIMS, MAX_ELEMENTS = 1 << 16, 4, 1 << 48

_SCALARS: dict[GGUFValueType, str] = {
    GGUFValueType.UINT8: "B",
    GGUFValueType.INT8: "b",
    GGUFValueType.UINT16: "H",
    GGUFValueType.INT16: "h",
    GGUFValueType.UINT32: "I",
    GGUFValueType.INT32: "i",
    GGUFValueType.FLOAT32: "f",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "Q",
    GGUFValueType.INT64: "q",
    GGUFValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where one tensor lies.

    Attributes:
        name: GGUF name, such as ``blk.0.attn_q.weight``.
        shape: outermost dimension first, as numpy counts (GGUF stores the reverse).
        kind: block type.
        offset, num_bytes: its bytes in the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    num_bytes: int

    @property
    def columns(self) -> int:
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        return int(np.prod(self.shape[:-1], dtype=np.int64))


class GgufFile:
    """A memory-mapped GGUF file.

    Attributes:
        path: the file.
        metadata: key to value: numbers, strings, lists of strings, and numpy arrays for
            arrays of numbers.
        tensors: name to place, in file order.
    """

    def __init__(self, path: Path) -> None:
        """Read the header of ``path``.

        Raises:
            ArtifactMissing: there is no such file.
            ArtifactCorrupt: it is truncated or breaks a rule of the format.
            ArtifactUnsupported: another version, byte order or block type.
        """
        self.path = path
        try:
            empty = path.stat().st_size == 0
            self._bytes: npt.NDArray[np.uint8] = (
                np.empty(0, np.uint8) if empty else np.memmap(path, np.uint8, "r")
            )
        except OSError as error:
            raise ArtifactMissing(
                f"{path} cannot be opened ({error.strerror or error}); give a .gguf file"
            ) from None
        header = _Header(self._bytes.data, str(path))
        self.metadata: dict[str, Any] = header.metadata
        self.tensors: dict[str, TensorInfo] = header.tensors
        if int(self.metadata.get("split.count", 1)) > 1:
            raise ArtifactUnsupported(
                f"{path} is one part of a split model; merge the parts into one file first"
            )

    def value(self, key: str, kind: type, default: Any = None) -> Any:
        """``metadata[key]``, checked.

        Args:
            key: the key; ``{arch}`` stands for the architecture.
            kind: int, float, bool, str or list (of strings).
            default: returned when the key is absent; None makes the key optional too.

        Raises:
            ArtifactCorrupt: the value has another type.
        """
        key = key.replace("{arch}", str(self.metadata.get("general.architecture")))
        found = self.metadata.get(key)
        if found is None:
            return default
        if kind is float and type(found) is int:
            return float(found)
        if type(found) is not kind:
            raise ArtifactCorrupt(
                f"{self.path}: {key} holds {_brief(found)}, expected {kind.__name__}; "
                "convert the model again"
            )
        return found

    def blocks(self, name: str) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor as ``[rows, bytes per row]``, still on disk."""
        info = self.tensors[name]
        flat = self._bytes[info.offset : info.offset + info.num_bytes]
        return flat.reshape(info.rows, -1)


class _Header:
    """One pass over the header; ``self._at`` never passes the end of the file."""

    def __init__(self, data: memoryview, where: str) -> None:
        self._data, self._where, self._at = data, where, 0
        if bytes(data[:4]) != b"GGUF":
            raise ArtifactCorrupt(
                f"{where} starts with {bytes(data[:4])!r}, expected b'GGUF'; it is no GGUF file"
            )
        self._at = 4
        version = self._scalar("I", "version")
        if version not in (2, 3):
            swapped = version & 0xFFFF == 0
            found = "a big-endian file" if swapped else f"version {version}"
            raise ArtifactUnsupported(
                f"{where} is {found}, expected little-endian version 2 or 3; convert it again"
            )
        num_tensors = self._count("tensors", MAX_TENSORS)
        num_keys = self._count("keys", MAX_KEYS)
        self.metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._string("a key", MAX_NAME_BYTES)
            if key in self.metadata:
                raise self._corrupt(f"the key {key!r} appears twice")
            self.metadata[key] = self._value(self._value_type(key), key)
        places = [self._tensor() for _ in range(num_tensors)]
        self.tensors = self._placed(places)

    def _corrupt(self, what: str) -> ArtifactCorrupt:
        return ArtifactCorrupt(f"{self._where}: {what}; fetch or convert the file again")

    def _take(self, size: int, what: str) -> int:
        at = self._at
        if size > len(self._data) - at:
            raise self._corrupt(
                f"{what} needs {size} bytes at {at} but the file has {len(self._data)}"
            )
        self._at = at + size
        return at

    def _scalar(self, code: str, what: str) -> Any:
        layout = "<" + code
        return struct.unpack_from(layout, self._data, self._take(struct.calcsize(layout), what))[0]

    def _count(self, what: str, limit: int) -> int:
        count = int(self._scalar("Q", f"the number of {what}"))
        if count > limit:
            raise self._corrupt(f"it claims {count} {what}, expected at most {limit}")
        return count

    def _string(self, what: str, limit: int | None = None) -> str:
        size = int(self._scalar("Q", what))
        if limit is not None and size > limit:
            raise self._corrupt(f"{what} is {size} bytes long, expected at most {limit}")
        at = self._take(size, what)
        try:
            return str(self._data[at : at + size], "utf-8")
        except UnicodeDecodeError:
            raise self._corrupt(f"{what} at byte {at} is not UTF-8") from None

    def _value_type(self, key: str) -> GGUFValueType:
        raw = self._scalar("I", f"the type of {key!r}")
        try:
            return GGUFValueType(raw)
        except ValueError:
            raise self._corrupt(f"{key!r} has value type {raw}, expected 0 to 12") from None

    def _value(self, kind: GGUFValueType, key: str) -> Any:
        if kind is GGUFValueType.STRING:
            return self._string(f"the value of {key!r}")
        if kind is not GGUFValueType.ARRAY:
            return self._scalar(_SCALARS[kind], f"the value of {key!r}")
        item = self._value_type(key)
        count = int(self._scalar("Q", f"the length of {key!r}"))
        if item is GGUFValueType.ARRAY:
            raise self._corrupt(f"{key!r} is an array of arrays")
        code = _SCALARS.get(item, "Q")  # a string takes at least its length
        size = count * struct.calcsize("<" + code)
        if item is GGUFValueType.STRING:
            if size > len(self._data) - self._at:
                raise self._corrupt(f"{key!r} claims {count} strings, more than the file can hold")
            return [self._string(f"an item of {key!r}") for _ in range(count)]
        at = self._take(size, f"the array {key!r}")
        return np.frombuffer(self._data, np.dtype(code).newbyteorder("<"), count, at)

    def _tensor(self) -> TensorInfo:
        name = self._string("a tensor's name", MAX_NAME_BYTES)
        num_dims = int(self._scalar("I", f"the rank of {name!r}"))
        if num_dims > MAX_DIMS:
            raise self._corrupt(f"{name!r} has {num_dims} dimensions, expected at most {MAX_DIMS}")
        shape = tuple(int(self._scalar("Q", f"the shape of {name!r}")) for _ in range(num_dims))
        raw = int(self._scalar("I", f"the type of {name!r}"))
        offset = int(self._scalar("Q", f"the offset of {name!r}"))
        elements = 1
        for size in shape:
            elements *= size
            if not 0 < size <= MAX_ELEMENTS or elements > MAX_ELEMENTS:
                raise self._corrupt(f"{name!r} has the impossible shape {shape}")
        try:
            kind = GGMLQuantizationType(raw)
        except ValueError:
            raise ArtifactUnsupported(
                f"{self._where}: tensor {name!r} has block type {raw}, which is unknown; "
                "convert the model to a common type such as Q8_0 or Q4_1"
            ) from None
        block, size = GGML_QUANT_SIZES[kind]
        if (shape[0] if shape else 1) % block:
            raise self._corrupt(
                f"{name!r} has {shape[0] if shape else 1} columns, "
                f"expected a multiple of {block} for {kind.name}"
            )
        return TensorInfo(name, shape[::-1], kind, offset, elements // block * size)

    def _placed(self, places: list[TensorInfo]) -> dict[str, TensorInfo]:
        """Tensors with absolute offsets, after a check that none overlaps or sticks out."""
        align = self.metadata.get("general.alignment", 32)
        if type(align) is not int or not 8 <= align <= 1 << 20 or align & (align - 1):
            raise self._corrupt(f"general.alignment is {_brief(align)}, expected a power of two")
        start = -(-self._at // align) * align
        end = 0
        for info in sorted(places, key=lambda t: t.offset):
            if info.offset % align or info.offset < end:
                raise self._corrupt(
                    f"{info.name!r} lies at {info.offset}, "
                    f"expected a multiple of {align} from {end} on"
                )
            end = info.offset + info.num_bytes
            if start + end > len(self._data):
                raise self._corrupt(
                    f"{info.name!r} ends at byte {start + end} "
                    f"but the file has {len(self._data)}: it is truncated"
                )
        found = {
            t.name: TensorInfo(t.name, t.shape, t.kind, start + t.offset, t.num_bytes)
            for t in places
        }
        if len(found) != len(places):
            raise self._corrupt("two tensors have the same name")
        return found


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."
