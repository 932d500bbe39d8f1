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
    assert f"export const KV_BLOCK = {ops.KV_BLOCK};" in text


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


def words_of(header: str, struct: str) -> dict[str, int]:
    """Where each field of a struct of 32-bit words lies, as JavaScript spells it."""
    (body,) = re.findall(r"typedef struct \{((?:(?!typedef)[^#])*?)\} " + struct + ";", header)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    body = re.sub(r"struct \{.*?\} top\[\w+\];", "uint32_t top;", body, flags=re.S)
    names = [
        n.strip() for names in re.findall(r"\w+_t ([^;]+);|float ([^;]+);", body) for n in names
    ]
    return {n.upper(): i for i, n in enumerate(", ".join(filter(None, names)).split(", "))}


def test_sampling_records() -> None:
    header = (ROOT / "wasm" / "include" / "volery.h").read_text()
    text = (SRC / "wasm" / "abi.js").read_text()
    rows = js_enums(text)
    sizes = dict(re.findall(r"sizeof\((v_\w+)\) == (\d+)", header))
    for name, struct in (("SampleRow", "v_sample_row"), ("SampledRow", "v_sampled")):
        words = words_of(header, struct)
        words.pop("ZERO", None)
        assert rows[name].pop("WORDS") == int(sizes[struct]) // 4
        assert rows[name] == words
    (no_mask,) = re.findall(r"#define V_NO_MASK (0x\w+)u", header)
    (top,) = re.findall(r"#define V_MAX_TOP (\d+)", header)
    assert f"NO_MASK = {no_mask};" in text
    assert f"MAX_TOP = {top};" in text


def test_cache_formats() -> None:
    header = (ROOT / "wasm" / "include" / "volery.h").read_text()
    numbers = {name.lower(): int(n) for name, n in re.findall(r"V_CACHE_(F\d+) = (\d)", header)}
    text = (SRC / "wasm" / "instance.js").read_text()
    (names,) = re.findall(r"KV_FORMATS = .*?\[([^\]]*)\]", text)
    assert [n.strip(' "') for n in names.split(",")] == sorted(numbers, key=lambda n: numbers[n])


def test_exports_declared() -> None:
    """Every function the JavaScript calls is declared in the header."""
    header = (ROOT / "wasm" / "include" / "volery.h").read_text()
    declared = set(re.findall(r"\b(v_\w+)\(", header))
    used = set(re.findall(r"@property \{[^}]*\} (v_\w+)", (SRC / "wasm" / "abi.js").read_text()))
    assert used
    assert used <= declared
