"""A program and its weights into a module's memory (the first half of volery.h)."""

from __future__ import annotations

from dataclasses import dataclass

import wasmtime

from runtime_py.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    ArtifactUnsupported,
    OutOfMemory,
    VoleryError,
)
from runtime_py.executors.base import KVFormat
from runtime_py.executors.wasmtime.calls import Instance
from runtime_py.executors.wasmtime.memory import LinearMemory, PrivateMemory, SharedMemory
from runtime_py.executors.weights import RowRange, WeightSource
from runtime_py.program import Program

ABI_VERSION = 2
ALIGNMENT = 64
RANGE_BYTES = 1 << 20
"""Weights pass through a buffer of about this size: all that loading needs beside them."""

_NAMES = {
    -1: "V_BAD_PROGRAM",
    -2: "V_UNSUPPORTED",
    -3: "V_NO_MEMORY",
    -4: "V_BAD_CALL",
    -5: "V_INCOMPLETE",
}


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """The arguments of v_cache: blocks, format, most wanted rows, words of sampling data."""

    blocks: int
    format: KVFormat
    max_wanted: int
    data_words: int


def make_memory(engine: wasmtime.Engine, module: wasmtime.Module, shared: bool) -> LinearMemory:
    """The memory that ``module`` imports."""
    kind = next(i.type for i in module.imports if isinstance(i.type, wasmtime.MemoryType))
    return SharedMemory(engine, kind) if shared else PrivateMemory(engine, kind)


def load(
    instance: Instance,
    memory: LinearMemory,
    program: Program,
    weights: WeightSource,
    *,
    max_tokens: int,
    max_seqs: int,
    workspaces: int,
    threads: int,
    cache: CacheSizes | None = None,
) -> None:
    """Validate, plan and seal the model, streaming its weights row range by row range.

    Args:
        instance: held by the calling thread.
        threads: most pool threads and ranks of a step.
        cache: of a decoder.

    Raises:
        ArtifactError: the program or its weights are not usable.
        OutOfMemory: with the bytes that were asked for.
    """
    version = instance.call("v_abi_version")
    if version != ABI_VERSION:
        raise ArtifactUnsupported(
            f"the wasm module has ABI version {version}, this runtime {ABI_VERSION}; "
            "run `toolchain build`"
        )
    encoded = program.encode()
    at = allocate(instance, len(encoded))
    memory.view()[at : at + len(encoded)] = encoded
    code = instance.call("v_create", at, len(encoded), max_tokens, max_seqs, workspaces, threads)
    if code < 0:
        raise failure(instance, code)
    if cache is not None:
        half = cache.format == "f16"
        code = instance.call("v_cache", cache.blocks, half, cache.max_wanted, cache.data_words)
        if code < 0:
            raise failure(instance, code)
    staging = _Staging(instance, memory)
    for index, tensor in enumerate(program.tensors):
        for part in weights.iter_rows(index, RANGE_BYTES):
            code = instance.call("v_write_rows", index, part.row0, part.rows, *staging.put(part))
            if code < 0:
                raise ArtifactCorrupt(
                    f"tensor {tensor.name!r}: rows {part.row0} to "
                    f"{part.row0 + part.rows - 1} were refused ({_NAMES.get(code, code)})"
                )
    code = instance.call("v_seal")
    if code < 0:
        missing = instance.call("v_detail", 0)
        if code == -5 and 0 <= missing < len(program.tensors):
            raise ArtifactMissing(f"tensor {program.tensors[missing].name!r} has rows missing")
        raise failure(instance, code)


class _Staging:
    """A buffer in wasm memory that row ranges pass through."""

    def __init__(self, instance: Instance, memory: LinearMemory) -> None:
        self._instance, self._memory = instance, memory
        self._at, self._size = 0, 0

    def put(self, part: RowRange) -> tuple[int, int, int]:
        """Copy a range in; the pointers to its data, scale and min (0: none)."""
        pieces = (part.data, part.scale, part.min)
        starts, end = [], 0
        for piece in pieces:
            starts.append(end)
            end += -(-(piece.nbytes if piece is not None else 0) // ALIGNMENT) * ALIGNMENT
        if end > self._size:
            # One request for the usual range; only very wide rows ask again.
            self._size = max(end, RANGE_BYTES + (RANGE_BYTES >> 3))
            self._at = allocate(self._instance, self._size)
        pointers = [
            self._at + s if p is not None else 0 for p, s in zip(pieces, starts, strict=True)
        ]
        view = self._memory.view()
        for piece, at in zip(pieces, pointers, strict=True):
            if piece is not None:
                view[at : at + piece.nbytes] = piece.cast("B")
        return pointers[0], pointers[1], pointers[2]


def allocate(instance: Instance, size: int) -> int:
    """``size`` bytes of wasm memory, for good.

    Raises:
        OutOfMemory: memory cannot grow.
    """
    at = instance.call("v_alloc", size) & 0xFFFFFFFF
    if not at:
        raise _no_memory(size)
    return at


def failure(instance: Instance, code: int) -> VoleryError:
    """The error that a failed call of the load stands for."""
    first, second = (instance.call("v_detail", i) for i in (0, 1))
    match code:
        case -1:
            return ArtifactCorrupt(
                f"program.bin: the wasm module refuses op {first} by its rule {second}"
            )
        case -2:
            return ArtifactUnsupported(
                f"program.bin: op {first} has kind or format {second}, unknown to the wasm "
                "module; run `toolchain build`"
            )
        case -3:
            return _no_memory((first & 0xFFFFFFFF) | (second & 0xFFFFFFFF) << 32)
        case _:
            return ArtifactCorrupt(
                f"the wasm module refused the model: {_NAMES.get(code, code)} ({first}, {second})"
            )


def _no_memory(size: int) -> OutOfMemory:
    return OutOfMemory(
        f"the model needs {size} bytes more than a wasm memory can give; "
        "lower max_tokens, max_seqs or kv_blocks",
        bytes_requested=size,
    )
