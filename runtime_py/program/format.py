"""``program.bin``: a header, then slot, tensor and op records of fixed size.

Everything is little-endian. Layout (offsets in bytes)::

    header  64   magic 'VLRY', u16 version, u16 0, u32 total_bytes,
                 u32 num_slots, u32 num_tensors, u32 num_ops, u32 names_bytes,
                 u32 output_slot, u32 vocab_size, u32 max_positions (0 = unlimited),
                 then zeros
    slots    8 x num_slots     u8 rows, u8 0, u16 0, u32 width
    tensors 32 x num_tensors   u32 name_offset, u16 name_bytes, u8 format, u8 ndim,
                               u32 shape[4] (unused = 1), u32 0, u32 0
    ops    112 x num_ops       u16 kind, u16 flags, i32 out, i32 out2, i32 ins[4],
                               i32 tensors[6], u32 uints[10], f32 floats[4], u32 0
    names    names_bytes       UTF-8 tensor names, back to back

Indices of -1 mean "none". Decoding here is total: any bytes give a `Program` or
an `ArtifactCorrupt` / `ArtifactUnsupported`; `runtime_py.program.validate` then
checks the meaning.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeVar

from runtime_py.errors import ArtifactCorrupt, ArtifactUnsupported
from runtime_py.program.ops import (
    MAX_FLOATS,
    MAX_INS,
    MAX_TENSORS,
    MAX_UINTS,
    OP_SPECS,
    OpKind,
    Rows,
    TensorFormat,
)

MAGIC = b"VLRY"
VERSION = 1
_HEADER = struct.Struct("<4sHHIIIIIIII24x")
_SLOT = struct.Struct("<BBHI")
_TENSOR = struct.Struct("<IHBB4III")
_OP = struct.Struct("<HHii4i6i10I4fI")
MAX_PROGRAM_BYTES = 16 << 20

assert (_HEADER.size, _SLOT.size, _TENSOR.size, _OP.size) == (64, 8, 32, 112)


@dataclass(frozen=True, slots=True)
class Slot:
    """An activation buffer: ``width`` f32 columns, one row per token or per sequence."""

    rows: Rows
    width: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A weight: its name in the shards, its storage format, its logical shape."""

    name: str
    format: TensorFormat
    shape: tuple[int, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """The safetensors entries that hold this tensor."""
        if self.format in (TensorFormat.F32, TensorFormat.F16):
            return (self.name,)
        if self.format in (TensorFormat.I8R, TensorFormat.S8B32):
            return (self.name, self.name + ".scale")
        return (self.name, self.name + ".scale", self.name + ".min")


@dataclass(frozen=True, slots=True)
class Op:
    """One fused op. Fields are named by `OP_SPECS`; read them with `arg`."""

    kind: OpKind
    out: int
    ins: tuple[int, ...] = ()
    tensors: tuple[int, ...] = ()
    uints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    flags: int = 0
    out2: int = -1

    def slot(self, name: str) -> int:
        """Slot index of input ``name``, or -1."""
        return _pick(self.ins, OP_SPECS[self.kind].ins, name, -1)

    def tensor(self, name: str) -> int:
        """Tensor index of ``name``, or -1."""
        return _pick(self.tensors, OP_SPECS[self.kind].tensors, name, -1)

    def uint(self, name: str) -> int:
        return _pick(self.uints, OP_SPECS[self.kind].uints, name, 0)

    def float(self, name: str) -> float:
        return _pick(self.floats, OP_SPECS[self.kind].floats, name, 0.0)


_T = TypeVar("_T")


def _pick(values: tuple[_T, ...], names: tuple[str, ...], name: str, default: _T) -> _T:
    for i, n in enumerate(names):
        if n.removeprefix("?") == name:
            return values[i] if i < len(values) else default
    raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Program:
    """A lowered model: what a backend executes, without its weights.

    Attributes:
        output_slot: a SEQS slot (one vector per sequence) or a TOKENS slot (one per token);
            of a decoder, a PICKED slot (the logits of each wanted row).
        vocab_size: token ids are in ``0 .. vocab_size - 1``.
        max_positions: longest sequence in tokens; 0 = unlimited.
    """

    slots: tuple[Slot, ...]
    tensors: tuple[Tensor, ...]
    ops: tuple[Op, ...]
    output_slot: int
    vocab_size: int
    max_positions: int

    @property
    def output(self) -> Slot:
        return self.slots[self.output_slot]

    @property
    def is_decoder(self) -> bool:
        """Whether it reads and writes a key-value cache."""
        return any(op.kind is OpKind.CACHE for op in self.ops)

    def encode(self) -> bytes:
        """The bytes of ``program.bin``."""
        names = b""
        tensors = b""
        for t in self.tensors:
            raw = t.name.encode()
            shape = (*t.shape, 1, 1, 1, 1)[:4]
            tensors += _TENSOR.pack(len(names), len(raw), t.format, len(t.shape), *shape, 0, 0)
            names += raw
        slots = b"".join(_SLOT.pack(s.rows, 0, 0, s.width) for s in self.slots)
        ops = b"".join(
            _OP.pack(
                op.kind,
                op.flags,
                op.out,
                op.out2,
                *_padded(op.ins, MAX_INS, -1),
                *_padded(op.tensors, MAX_TENSORS, -1),
                *_padded(op.uints, MAX_UINTS, 0),
                *_padded(op.floats, MAX_FLOATS, 0.0),
                0,
            )
            for op in self.ops
        )
        body = slots + tensors + ops + names
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            0,
            _HEADER.size + len(body),
            len(self.slots),
            len(self.tensors),
            len(self.ops),
            len(names),
            self.output_slot,
            self.vocab_size,
            self.max_positions,
        )
        return header + body

    @classmethod
    def decode(cls, data: bytes) -> Program:
        """Parse ``program.bin``.

        Raises:
            ArtifactCorrupt: the bytes break the format.
            ArtifactUnsupported: a newer version, or an op or format unknown here.
        """
        if len(data) < _HEADER.size:
            raise ArtifactCorrupt(
                f"program.bin has {len(data)} bytes, its header alone has {_HEADER.size}"
            )
        head = _HEADER.unpack_from(data)
        magic, version, zero, total, n_slots, n_tensors, n_ops, n_names = head[:8]
        if magic != MAGIC or zero != 0:
            raise ArtifactCorrupt(f"program.bin starts with {magic!r}, expected {MAGIC!r}")
        if version != VERSION:
            raise ArtifactUnsupported(
                f"program.bin is version {version}, this runtime reads version {VERSION}; "
                "export the model again or update volery"
            )
        sizes = (
            _HEADER.size,
            n_slots * _SLOT.size,
            n_tensors * _TENSOR.size,
            n_ops * _OP.size,
            n_names,
        )
        if total != len(data) or sum(sizes) != total or total > MAX_PROGRAM_BYTES:
            raise ArtifactCorrupt(
                f"program.bin has {len(data)} bytes, its header says {total} "
                f"and its tables need {sum(sizes)}"
            )
        at = _HEADER.size
        slots = tuple(_slot(data, at + i * _SLOT.size) for i in range(n_slots))
        at += sizes[1]
        names = data[total - n_names :]
        tensors = tuple(_tensor(data, at + i * _TENSOR.size, names) for i in range(n_tensors))
        at += sizes[2]
        ops = tuple(_op(data, at + i * _OP.size, i) for i in range(n_ops))
        return cls(slots, tensors, ops, *head[8:])


def _padded(values: tuple[_T, ...], size: int, fill: _T) -> tuple[_T, ...]:
    if len(values) > size:
        raise ValueError(f"{len(values)} values do not fit {size} fields")
    return values + (fill,) * (size - len(values))


def _slot(data: bytes, at: int) -> Slot:
    rows, z0, z1, width = _SLOT.unpack_from(data, at)
    if rows > max(Rows) or z0 or z1:
        raise ArtifactCorrupt(f"program.bin: slot of unknown row kind {rows}")
    return Slot(Rows(rows), width)


def _tensor(data: bytes, at: int, names: bytes) -> Tensor:
    start, length, fmt, ndim, *rest = _TENSOR.unpack_from(data, at)
    shape, zeros = rest[:4], rest[4:]
    if start + length > len(names) or not length:
        raise ArtifactCorrupt("program.bin: a tensor's name lies outside the name table")
    if not 1 <= ndim <= 4 or any(zeros) or any(d != 1 for d in shape[ndim:]):
        raise ArtifactCorrupt(f"program.bin: tensor record with {ndim} dimensions {shape}")
    try:
        name = names[start : start + length].decode()
    except UnicodeDecodeError:
        raise ArtifactCorrupt("program.bin: a tensor's name is not UTF-8") from None
    try:
        return Tensor(name, TensorFormat(fmt), tuple(shape[:ndim]))
    except ValueError:
        raise ArtifactUnsupported(
            f"tensor {name!r} has format {fmt}, this runtime knows "
            f"{[f.name for f in TensorFormat]}; update volery"
        ) from None


def _op(data: bytes, at: int, index: int) -> Op:
    fields = _OP.unpack_from(data, at)
    kind, flags, out, out2 = fields[:4]
    ins, tensors, uints, floats, zero = (
        fields[4:8],
        fields[8:14],
        fields[14:24],
        fields[24:28],
        fields[28],
    )
    try:
        spec = OP_SPECS[OpKind(kind)]
    except ValueError:
        raise ArtifactUnsupported(
            f"op {index} has kind {kind}, this runtime knows {[k.name for k in OpKind]}; "
            "update volery"
        ) from None
    n_in, n_t, n_u, n_f = (
        len(spec.ins),
        len(spec.tensors),
        len(spec.uints),
        len(spec.floats),
    )
    if (
        zero
        or any(i != -1 for i in ins[n_in:] + tensors[n_t:])
        or any(u != 0 for u in uints[n_u:])
        or any(f != 0.0 for f in floats[n_f:])
    ):
        raise ArtifactCorrupt(f"program.bin: op {index} ({OpKind(kind).name}) sets unknown fields")
    return Op(
        OpKind(kind),
        out,
        ins[:n_in],
        tensors[:n_t],
        uints[:n_u],
        floats[:n_f],
        flags,
        out2,
    )
