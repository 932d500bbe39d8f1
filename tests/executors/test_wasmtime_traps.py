"""A module of the real ABI that traps: every call of the executor says so, and stays said."""

from __future__ import annotations

import pytest
import wasmtime

from runtime_py.errors import DeviceLost
from runtime_py.executors.wasmtime import modules
from runtime_py.executors.wasmtime.loader import ABI_VERSION
from tests.executors.test_wasmtime import STEP, small


def trapping(name: str) -> bytes:
    """A module with the real ABI whose export ``name`` runs into `unreachable`."""
    results = {
        "v_alloc": 64,
        "v_abi_version": ABI_VERSION,
        "v_workspace": 4096,
        "v_part_bytes": 4096,
    }
    params = {
        "v_alloc": 1,
        "v_create": 6,
        "v_write_rows": 6,
        "v_memory_bytes": 1,
        "v_workspace": 2,
        "v_part_bytes": 1,
        "v_run": 1,
    }
    functions = []
    for f in (
        "v_abi_version",
        "v_alloc",
        "v_create",
        "v_write_rows",
        "v_seal",
        "v_workspace",
        "v_part_bytes",
        "v_run",
    ):
        body = "unreachable" if f == name else f"i32.const {results.get(f, 0)}"
        declared = "(param i32)" * params.get(f, 0)
        functions.append(f'(func (export "{f}") {declared} (result i32) {body})')
    functions.append('(func (export "v_memory_bytes") (param i32) (result i64) i64.const 0)')
    functions.append('(func (export "v_detail") (param i32) (result i32) i32.const 0)')
    memory = '(import "env" "memory" (memory 64))'
    return bytes(wasmtime.wat2wasm(f"(module {memory} {' '.join(functions)})"))


def test_a_trap_in_a_step_loses_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    wasm = wasmtime.Module(modules.engine(False), trapping("v_run"))
    monkeypatch.setattr("runtime_py.executors.wasmtime.device.module", lambda variant: wasm)
    model = small()
    for _ in range(2):
        with pytest.raises(DeviceLost, match=r"trapped in v_run .*unreachable.*load the model"):
            model.run(STEP)
    results: list[object] = []
    with pytest.raises(DeviceLost):
        model.submit(STEP, results.append)
    assert not results
    model.close()


def test_a_trap_while_loading_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    wasm = wasmtime.Module(modules.engine(False), trapping("v_write_rows"))
    monkeypatch.setattr("runtime_py.executors.wasmtime.device.module", lambda variant: wasm)
    with pytest.raises(DeviceLost, match="trapped in v_write_rows"):
        small()
