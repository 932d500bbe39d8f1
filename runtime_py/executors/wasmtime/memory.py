"""Linear memory seen from Python, without views that outlive a call.

The address is asked for at every access: growth may move a memory, and a view kept
from before would read freed pages.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi

from runtime_py.errors import OutOfMemory

PAGE = 1 << 16


class LinearMemory(ABC):
    """A wasm memory.

    Attributes:
        engine: every instance over the memory belongs to it.
        store: the one store that owns the memory; None when stores share it.
        extern: what an instance imports.
    """

    engine: wasmtime.Engine
    store: wasmtime.Store | None
    extern: Any
    _viewed = 0
    _whole: type[ctypes.Array[ctypes.c_ubyte]] = ctypes.c_ubyte * 0

    @abstractmethod
    def size(self) -> int:
        """Bytes."""

    @abstractmethod
    def address(self) -> int:
        """Where byte 0 lies in this process."""

    @abstractmethod
    def close(self) -> None:
        """Drop this reference to the memory."""

    def view(self) -> memoryview:
        """All bytes. Use it inside one expression: a call into wasm may move them."""
        size = self.size()
        if size != self._viewed:  # making a ctypes type is slow: keep it
            self._viewed, self._whole = size, ctypes.c_ubyte * size
        return memoryview(self._whole.from_address(self.address())).cast("B")


class PrivateMemory(LinearMemory):
    """A memory of one store."""

    def __init__(self, engine: wasmtime.Engine, kind: wasmtime.MemoryType) -> None:
        self.engine = engine
        self.store = wasmtime.Store(engine)
        try:
            self.extern = wasmtime.Memory(self.store, kind)
        except wasmtime.WasmtimeError as error:
            raise _no_memory(kind, error) from None

    def size(self) -> int:
        return int(self.extern.data_len(self.store))

    def address(self) -> int:
        return ctypes.addressof(self.extern.data_ptr(self.store).contents)

    def close(self) -> None:
        if self.store is not None:
            self.store.close()


class _SharedMemory(wasmtime.SharedMemory):  # type: ignore[misc]
    """wasmtime-py 50 passes a pointer to the pointer here, which ctypes refuses."""

    def _as_extern(self) -> Any:
        union = ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)


class SharedMemory(LinearMemory):
    """A memory that every instance of the pool imports."""

    store = None

    def __init__(self, engine: wasmtime.Engine, kind: wasmtime.MemoryType) -> None:
        self.engine = engine
        limits = wasmtime.Limits(kind.limits.min, kind.limits.max)
        try:
            self.extern = _SharedMemory(engine, wasmtime.MemoryType(limits, shared=True))
        except wasmtime.WasmtimeError as error:
            raise _no_memory(kind, error) from None

    def size(self) -> int:
        return int(self.extern.data_len())

    def address(self) -> int:
        return ctypes.addressof(self.extern.data_ptr().contents)

    def close(self) -> None:
        self.extern.close()


def _no_memory(kind: wasmtime.MemoryType, error: wasmtime.WasmtimeError) -> OutOfMemory:
    asked = kind.limits.min * PAGE
    reason = str(error).splitlines()[0]
    return OutOfMemory(
        f"wasmtime could not make a memory of {asked} bytes ({reason}); free memory",
        bytes_requested=asked,
    )
