"""The core is sans-IO: what it may import and use is fixed here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import runtime_py.batching

ALLOWED = {
    "__future__",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "hashlib",
    "heapq",
    "itertools",
    "json",
    "operator",
    "typing",
    "runtime_py.errors",
}
FOLDER = Path(runtime_py.batching.__file__).parent
FILES = sorted(FOLDER.glob("**/*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_imports_are_pure(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            assert name in ALLOWED or name.startswith("runtime_py.batching"), name


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_decisions_can_be_reproduced_in_javascript(path: Path) -> None:
    """No set, no hash(), no power beyond ``2**n`` constants, no math functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        assert not isinstance(node, ast.Set | ast.SetComp)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"set", "frozenset", "hash", "id", "round", "pow"}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            assert isinstance(node.left, ast.Constant)
            assert isinstance(node.right, ast.Constant)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_files_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500
