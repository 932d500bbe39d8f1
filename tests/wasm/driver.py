"""The smallest host of a single-thread module: what the ABI promises, and no more."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import wasmtime

from runtime_py._wasm import module_file
from runtime_py.executors.weights import MemoryWeights
from runtime_py.program import Program

OK, BAD_PROGRAM, UNSUPPORTED, NO_MEMORY, BAD_CALL, INCOMPLETE, BAD_STEP = 0, -1, -2, -3, -4, -5, -6
HEADER, TOKENS, SEQS, OUTPUT, STATUS = range(5)
PAGE = 65536
UNSIGNED = {"v_alloc", "v_workspace", "v_detail", "v_features", "v_part_bytes"}


@cache
def compiled(variant: str) -> tuple[wasmtime.Engine, wasmtime.Module]:
    config = wasmtime.Config()
    config.wasm_relaxed_simd = True
    engine = wasmtime.Engine(config)
    return engine, wasmtime.Module(engine, module_file(variant).read_bytes())


class Host:
    """One instance of ``volery-<variant>.wasm`` with its memory.

    Args:
        max_pages: where the memory stops growing.
    """

    def __init__(self, variant: str = "simd", max_pages: int = 4096) -> None:
        engine, module = compiled(variant)
        self._store = wasmtime.Store(engine)
        limits = wasmtime.Limits(2, max_pages)
        self.memory = wasmtime.Memory(self._store, wasmtime.MemoryType(limits))
        instance = wasmtime.Instance(self._store, module, [self.memory])
        self._exports = instance.exports(self._store)

    def call(self, name: str, *args: int) -> int:
        """Pointers and counts come back as u32, statuses as they are."""
        value = self._exports[name](self._store, *(ctypes.c_int32(a).value for a in args))
        return value & 0xFFFFFFFF if name in UNSIGNED else value

    def detail(self) -> tuple[int, int]:
        return self.call("v_detail", 0), self.call("v_detail", 1)

    @property
    def pages(self) -> int:
        return self.memory.size(self._store)

    def write(self, at: int, data: bytes) -> None:
        self.memory.write(self._store, data, at)

    def read(self, at: int, size: int) -> bytes:
        return bytes(self.memory.read(self._store, at, at + size))

    def put(self, data: bytes) -> int:
        at = self.call("v_alloc", len(data))
        assert at
        self.write(at, data)
        return at

    def create(
        self, program: bytes, tokens: int = 64, seqs: int = 8, workspaces: int = 1, threads: int = 1
    ) -> int:
        at = self.put(program)
        return self.call("v_create", at, len(program), tokens, seqs, workspaces, threads)

    def load(self, program: Program, parts: dict[str, bytes], max_bytes: int = 1 << 20) -> None:
        weights = MemoryWeights(program, parts)
        for tensor in range(len(program.tensors)):
            for rows in weights.iter_rows(tensor, max_bytes):
                pointers = [self.put(bytes(p)) if p else 0 for p in rows[2:]]
                status = self.call("v_write_rows", tensor, rows.row0, rows.rows, *pointers)
                assert status == OK, self.detail()
        assert self.call("v_seal") == OK, self.detail()

    def fill(self, lengths: Sequence[int], ids: Iterable[int], skip: int = 0, ws: int = 0) -> None:
        """Write the inputs of a step; ``skip`` is every sequence's pool_skip."""
        tokens = np.fromiter(ids, "<i4")
        first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        seqs = np.stack([first, lengths, np.zeros_like(first), np.full_like(first, skip)], axis=1)
        header = np.array([len(tokens), len(lengths)], "<u4")
        for part, data in ((HEADER, header), (TOKENS, tokens), (SEQS, seqs.astype("<u4"))):
            self.write(self.call("v_workspace", ws, part), data.tobytes())

    def output(self, rows: int, width: int, ws: int = 0) -> np.ndarray:
        raw = self.read(self.call("v_workspace", ws, OUTPUT), 4 * rows * width)
        return np.frombuffer(raw, "<f4").reshape(rows, width)

    def statuses(self, seqs: int, ws: int = 0) -> bytes:
        return self.read(self.call("v_workspace", ws, STATUS), seqs)
