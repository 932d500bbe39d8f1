"""Calls into wasm at the price of one foreign call.

``wasmtime.Func.__call__`` looks up the function's type and converts every value, for 25
microseconds a call. The module's ABI only has 32-bit integers, so the raw call suffices.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import wasmtime
from wasmtime import _bindings as bindings
from wasmtime import _ffi as ffi

from runtime_py.errors import DeviceLost
from runtime_py.executors.wasmtime.memory import LinearMemory

# The GIL is released during the call. Pointers are passed as plain addresses.
_call_unchecked = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
)(ctypes.cast(bindings.dll.wasmtime_func_call_unchecked, ctypes.c_void_p).value or 0)

_MAX_VALUES = 8


class Instance:
    """One instance of the module over a memory: one thread at a time may call it.

    `held` makes the calling thread its owner; a call from any other thread raises
    RuntimeError instead of corrupting the store.
    """

    def __init__(self, module: wasmtime.Module, memory: LinearMemory) -> None:
        self._store = memory.store or wasmtime.Store(memory.engine)
        instance = wasmtime.Instance(self._store, module, [memory.extern])
        exports = instance.exports(self._store)
        self._functions = {
            name: export._func
            for name, export in exports.items()
            if isinstance(export, wasmtime.Func)
        }
        self._addresses = {n: ctypes.addressof(f) for n, f in self._functions.items()}
        self._stack_pointer = exports.get("__stack_pointer")
        self._context = ctypes.cast(self._store._context(), ctypes.c_void_p).value
        self._values = (ctypes.c_uint64 * (2 * _MAX_VALUES))()  # 16 bytes a value
        self._trap = ctypes.c_void_p()
        self._values_at = ctypes.addressof(self._values)
        self._trap_at = ctypes.addressof(self._trap)
        self._owner = 0

    def call(self, name: str, *args: int) -> int:
        """Call export ``name`` with u32 arguments; its i32 result, signed.

        Raises:
            DeviceLost: the call trapped.
        """
        result = self.call64(name, *args) & 0xFFFFFFFF
        return result - ((result & 0x80000000) << 1)

    def call64(self, name: str, *args: int) -> int:
        """Like `call`, with the result as the u64 it may be."""
        if self._owner != threading.get_ident():
            raise RuntimeError(
                f"{name} was called on a thread that does not hold this wasm instance"
            )
        values, i = self._values, 0
        for value in args:
            values[i] = value & 0xFFFFFFFF
            i += 2
        error = _call_unchecked(
            self._context, self._addresses[name], self._values_at, _MAX_VALUES, self._trap_at
        )
        if error or self._trap.value:
            raise self._lost(name, error)
        return values[0]

    def set_stack(self, top: int) -> None:
        """Give a threads build's instance its own stack."""
        if self._stack_pointer is not None:
            self._stack_pointer.set_value(self._store, top)

    def acquire(self) -> None:
        """Make the calling thread the owner, until `release`."""
        if self._owner:
            raise RuntimeError("this wasm instance is held by another thread")
        self._owner = threading.get_ident()

    def release(self) -> None:
        """Give the instance up."""
        self._owner = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """The calling thread owns the instance for the duration."""
        self.acquire()
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        """Free the store. The instance must not be used again."""
        self._store.close()

    def _lost(self, name: str, error: int | None) -> DeviceLost:
        cause: Exception
        if error:
            pointer = ctypes.cast(error, ctypes.POINTER(ffi.wasmtime_error_t))
            cause = wasmtime.WasmtimeError._from_ptr(pointer)
        else:
            trap = ctypes.cast(self._trap, ctypes.POINTER(ffi.wasm_trap_t))
            self._trap = ctypes.c_void_p()
            self._trap_at = ctypes.addressof(self._trap)
            cause = wasmtime.Trap._from_ptr(trap)
        reason = str(cause).strip().splitlines()[-1].strip()
        return DeviceLost(f"the wasm module trapped in {name} ({reason}); load the model again")
