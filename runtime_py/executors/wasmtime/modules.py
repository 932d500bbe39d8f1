"""Compiled modules: one engine and one module per variant and process, cached on disk.

Compiling takes a good part of a second, so the machine code is kept in the user's cache
folder under the hash of the wasm bytes and the version of wasmtime. A file that is
damaged, or was made for another processor, is compiled again.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from functools import cache
from importlib import metadata, resources
from pathlib import Path
from typing import Literal, get_args

import wasmtime

from runtime_py import _compat
from runtime_py.errors import ArtifactMissing, InvalidInput
from runtime_py.program import OpKind, Program

Variant = Literal["auto", "simd", "relaxed", "simd-threads", "relaxed-threads"]
"""A build of the wasm module; "auto" is the faster one, with threads where they are asked for."""


def choose(variant: Variant, shared: bool, program: Program) -> Variant:
    """The build to load for ``variant``; ``shared``: several instances share one memory.

    Both give the same bits for quantized weights. wasmtime makes three instructions of the
    relaxed dot product of bytes, of which 16-bit activations need two: plain SIMD, which
    multiplies 16-bit numbers, is 1.5 times as fast with them.
    """
    if variant not in get_args(Variant):
        raise InvalidInput(f"variant is {variant!r}, expected one of {get_args(Variant)}")
    if variant == "auto":
        if _mostly_wide(program):
            return "simd-threads" if shared else "simd"
        return "relaxed-threads" if shared else "relaxed"
    if shared and not variant.endswith("-threads"):
        raise InvalidInput(
            f"variant {variant!r} runs one step on one thread; "
            f"use {variant + '-threads'!r} for more"
        )
    return variant


def _mostly_wide(program: Program) -> bool:
    """Whether most products of the linear layers are with 16-bit activations."""
    balance = 0
    for op in program.ops:
        if op.kind is OpKind.LINEAR:
            n, k = program.tensors[op.tensor("weight")].shape
            balance += n * k if op.uint("activation_bits") == 16 else -n * k
    return balance > 0


@cache
def engine(threads: bool) -> wasmtime.Engine:
    """The process's engine for builds with or without shared memory."""
    config = wasmtime.Config()
    config.wasm_simd = True
    config.wasm_relaxed_simd = True
    config.wasm_bulk_memory = True
    config.wasm_threads = threads
    config.cranelift_opt_level = "speed"
    if threads:
        config.shared_memory = True
    return wasmtime.Engine(config)


@cache
def module(variant: Variant) -> wasmtime.Module:
    """The compiled module of ``variant``.

    Raises:
        ArtifactMissing: the wasm file was not built.
    """
    name = f"volery-{variant}.wasm"
    file = resources.files("runtime_py") / "_wasm" / name
    if not file.is_file():
        raise ArtifactMissing(f"{name} is not built; run `toolchain build`")
    return compile_cached(engine(variant.endswith("-threads")), file.read_bytes())


def cache_folder() -> Path:
    """Where compiled modules are kept."""
    return _compat.cache_folder("wasmtime")


def compile_cached(engine: wasmtime.Engine, wasm: bytes) -> wasmtime.Module:
    """Compile ``wasm``, or take its machine code from the cache."""
    key = f"{platform.machine()}-{metadata.version('wasmtime')}"
    path = cache_folder() / f"{hashlib.sha256(wasm).hexdigest()}-{key}.cwasm"
    code = _read(path)
    if code is not None:
        try:
            return wasmtime.Module.deserialize(engine, code)
        except wasmtime.WasmtimeError:
            pass  # made under another configuration or for another processor
    compiled = wasmtime.Module(engine, wasm)
    _write(path, bytes(compiled.serialize()))
    return compiled


def _read(path: Path) -> bytes | None:
    """The machine code in ``path`` if it is whole and this user wrote it."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "getuid") and os.fstat(file.fileno()).st_uid != os.getuid():
                return None  # deserializing runs its content: trust no one else's
            digest, code = file.read(32), file.read()
    except OSError:
        return None
    return code if hashlib.sha256(code).digest() == digest else None


def _write(path: Path, code: bytes) -> None:
    """Replace ``path`` in one move; a cache that cannot be written is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError:
        return
