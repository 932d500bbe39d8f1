"""The native executor: the wasm module under wasmtime, with real threads."""

from runtime_py.executors.wasmtime.executor import WasmtimeExecutor
from runtime_py.executors.wasmtime.modules import Variant

__all__ = ["Variant", "WasmtimeExecutor"]
