"""ops.py, wasm/include/program.h and workers/src/program/ops.js say the same numbers."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import pytest

from runtime_py.program import (
    BLOCK,
    FLAG_CAUSAL,
    FLAG_INTERLEAVED,
    FLAG_SWAP,
    FLAG_UP_FIRST,
    KV_BLOCK,
    OP_SPECS,
    Activation,
    BinaryOp,
    NormMode,
    OpKind,
    PoolMode,
    Rows,
    TensorFormat,
)
from runtime_py.program import ops as table

ROOT = Path(__file__).parents[2]
HEADER = (ROOT / "wasm/include/program.h").read_text()
SCRIPT = (ROOT / "workers/src/program/ops.js").read_text()

ENUMS: dict[str, type[IntEnum]] = {
    "V_ROWS_": Rows,
    "V_FORMAT_": TensorFormat,
    "V_ACTIVATION_": Activation,
    "V_NORM_": NormMode,
    "V_BINARY_": BinaryOp,
    "V_POOL_": PoolMode,
    "V_OP_": OpKind,
}


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def members(enum: type[IntEnum]) -> dict[str, int]:
    return {name: int(member) for name, member in enum.__members__.items()}


def c_enum(prefix: str) -> dict[str, int]:
    """The numbered members of the one C enum whose names start with ``prefix``."""
    found = [
        dict(re.findall(rf"\b{prefix}(\w+)\s*=\s*(\d+)", body))
        for body in re.findall(r"typedef enum\s*\{(.*?)\}", without_comments(HEADER), re.DOTALL)
    ]
    (match,) = [f for f in found if f]
    return {name: int(value) for name, value in match.items()}


@pytest.mark.parametrize("prefix", ENUMS)
def test_c_header(prefix: str) -> None:
    assert c_enum(prefix) == members(ENUMS[prefix])


def test_c_flags_and_sizes() -> None:
    assert c_enum("V_FLAG_") == {
        "CAUSAL": FLAG_CAUSAL,
        "INTERLEAVED": FLAG_INTERLEAVED,
        "UP_FIRST": FLAG_UP_FIRST,
        "SWAP": FLAG_SWAP,
    }
    for name, value in (
        ("V_BLOCK", BLOCK),
        ("V_KV_BLOCK", KV_BLOCK),
        ("V_MAX_INS", table.MAX_INS),
        ("V_MAX_TENSORS", table.MAX_TENSORS),
        ("V_MAX_UINTS", table.MAX_UINTS),
        ("V_MAX_FLOATS", table.MAX_FLOATS),
    ):
        (found,) = re.findall(rf"#define {name} (\d+)", HEADER)
        assert int(found) == value, name


@pytest.mark.parametrize("kind", OpKind)
def test_c_field_positions(kind: OpKind) -> None:
    """The unnumbered enums name every field of the op record, in wire order."""
    wanted: dict[str, int] = {}
    spec = OP_SPECS[kind]
    for fields in (spec.ins, spec.tensors, spec.uints, spec.floats):
        wanted.update((n.removeprefix("?").upper(), i) for i, n in enumerate(fields))
    found: dict[str, int] = {}
    for body in re.findall(r"(?<!typedef )enum\s*\{([^}]*)\}", without_comments(HEADER)):
        names = [n.strip() for n in body.split(",") if n.strip()]
        # NORM is not NORMALIZE: the prefix ends at an underscore
        mine = [n.removeprefix(f"V_{kind.name}_") for n in names if n.startswith(f"V_{kind.name}_")]
        assert len(mine) in (0, len(names)), body
        found.update((n, i) for i, n in enumerate(mine))
    assert found == wanted


@pytest.mark.parametrize("enum", ENUMS.values(), ids=lambda e: e.__name__)
def test_javascript_table(enum: type[IntEnum]) -> None:
    (body,) = re.findall(
        rf"\b{enum.__name__}\s*=\s*Object\.freeze\(\{{(.*?)\}}\)",
        without_comments(SCRIPT),
        re.DOTALL,
    )
    found = {name: int(value) for name, value in re.findall(r"(\w+)\s*:\s*(\d+)", body)}
    assert found == members(enum)


def test_javascript_block() -> None:
    (found,) = re.findall(r"\bBLOCK\s*=\s*(\d+)", SCRIPT)
    assert int(found) == BLOCK
