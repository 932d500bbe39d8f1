"""The JavaScript tables equal their sources: ops.py, errors.py and volery.h."""

from __future__ import annotations

import inspect
import re
from enum import IntEnum

import pytest

from runtime_py import errors
from runtime_py.program import ops
from tests.js.hosts import ROOT

SRC = ROOT / "workers" / "src"
ENUM = re.compile(r"export const (\w+) = Object\.freeze\(\{(.*?)\}\)", re.S)
CLASS = re.compile(r"^export class (\w+) extends (\w+)", re.M)


def js_enums(text: str) -> dict[str, dict[str, int]]:
    return {
        name: {key: int(value) for key, value in re.findall(r"(\w+):\s*(-?\d+)", body)}
        for name, body in ENUM.findall(text)
    }


def test_ops() -> None:
    text = (SRC / "program" / "ops.js").read_text()
    python = {
        name: {member.name: member.value for member in enum}
        for name, enum in inspect.getmembers(ops, inspect.isclass)
        if issubclass(enum, IntEnum) and enum is not IntEnum
    }
    assert js_enums(text) == python
    assert f"export const BLOCK = {ops.BLOCK};" in text


def test_errors() -> None:
    """Same names and parents. Python's builtins and the toolchain's gate have no twin."""
    javascript = dict(CLASS.findall((SRC / "errors.js").read_text()))
    assert javascript.pop("VoleryError") == "Error"
    python = {
        name: next(b.__name__ for b in cls.__bases__ if issubclass(b, errors.VoleryError))
        for name, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.VoleryError)
        and cls is not errors.VoleryError
        and cls is not errors.AccuracyGate
    }
    assert javascript == python


@pytest.mark.parametrize(
    ("c_enum", "prefix", "js_name"),
    [
        ("v_error", "V_", "Code"),
        ("v_step_fault", "V_STEP_", "StepFault"),
        ("v_ws_part", "V_WS_", "WorkspacePart"),
    ],
)
def test_abi(c_enum: str, prefix: str, js_name: str) -> None:
    header = (ROOT / "wasm" / "include" / "volery.h").read_text()
    javascript = js_enums((SRC / "wasm" / "abi.js").read_text())
    (body,) = re.findall(r"typedef enum \{([^}]*)\} " + c_enum + ";", header)
    c = {k.removeprefix(prefix): int(v) for k, v in re.findall(r"(V_\w+) = (-?\d+)", body)}
    assert javascript[js_name] == c
    (version,) = re.findall(r"#define V_ABI_VERSION (\d+)", header)
    assert f"ABI_VERSION = {version};" in (SRC / "wasm" / "abi.js").read_text()


def test_exports_declared() -> None:
    """Every function the JavaScript calls is declared in the header."""
    header = (ROOT / "wasm" / "include" / "volery.h").read_text()
    declared = set(re.findall(r"\b(v_\w+)\(", header))
    used = set(re.findall(r"@property \{[^}]*\} (v_\w+)", (SRC / "wasm" / "abi.js").read_text()))
    assert used
    assert used <= declared
