"""The part is deterministic: no clock, no threads, no unordered iteration."""

from __future__ import annotations

import ast
from pathlib import Path

import runtime_py.batching.kv as kv

FILES = sorted(Path(kv.__file__).parent.glob("*.py"))
ALLOWED = {"__future__", "collections.abc", "typing"}


def test_imports_and_names() -> None:
    assert len(FILES) == 4
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                names = []
            assert all(n in ALLOWED or n.startswith("runtime_py.") for n in names), file
            assert not isinstance(node, (ast.Set, ast.SetComp)), file
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"set", "frozenset", "hash", "id"}, file
