"""What an import brings along: the runtime nothing but the standard library, the CLI no torch."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {
    "torch",
    "transformers",
    "optimum",
    "onnx",
    "onnxruntime",
    "sentence_transformers",
    "scipy",
}


def modules_after(code: str) -> set[str]:
    """Top-level modules that ``code`` adds to a fresh interpreter."""
    script = (
        "import sys, json; before = set(sys.modules)\n"
        f"{code}\n"
        "print(json.dumps(sorted({m.partition('.')[0] for m in set(sys.modules) - before})))"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return set(json.loads(out.splitlines()[-1]))


def test_the_runtime_imports_only_the_standard_library() -> None:
    assert modules_after("import runtime_py") - sys.stdlib_module_names == {"runtime_py"}


def test_the_command_line_starts_without_the_export_stack() -> None:
    code = "import toolchain.cli.app"
    assert not modules_after(code) & HEAVY


def test_help_is_quick() -> None:
    """In processor time, which other processes hardly add to."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "toolchain", "--help"], cwd=ROOT, capture_output=True, check=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 1.0
