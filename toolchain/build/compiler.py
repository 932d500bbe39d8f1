"""Calls the C compiler that the ``ziglang`` package carries (clang and lld)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from runtime_py.errors import VoleryError

FLAGS = (
    "--target=wasm32-freestanding",
    "-std=c17",
    "-O3",
    "-g0",
    "-nostdlib",
    "-ffreestanding",
    "-fno-sanitize=undefined",
    # A multiplication and an addition must round twice, in every build alike.
    "-ffp-contract=off",
    "-fno-fast-math",
    "-msimd128",
    "-mbulk-memory",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Wno-sign-conversion",
    "-Wshadow",
    "-Werror",
    "-Wl,--no-entry",
    "-Wl,--import-memory",
    "-Wl,-z,stack-size=65536",
    "-Wl,--strip-all",
)
TIMEOUT_S = 600


class CompilerMissing(VoleryError):
    """The ``ziglang`` package is not installed."""


class CompileError(VoleryError):
    """The compiler refused the sources."""


def compile_wasm(
    root: Path, sources: Sequence[str], includes: Sequence[str], flags: Sequence[str], out: Path
) -> None:
    """Compile and link ``sources`` into ``out``.

    The compiler runs in ``root`` and is given relative paths, so that nothing of where
    the sources lie enters the module. ``out`` is replaced only by a complete module.

    Args:
        root: folder that ``sources`` and ``includes`` are relative to.
        flags: what this build adds to `FLAGS`.

    Raises:
        CompilerMissing: ziglang is not installed.
        CompileError: the sources do not compile; the message starts with the first error.
    """
    if importlib.util.find_spec("ziglang") is None:
        raise CompilerMissing(
            "compiling the wasm runtime needs the package ziglang, which is not installed; "
            "run `pip install volery[build]`"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        part = Path(folder, out.name).resolve()
        command = [
            *(sys.executable, "-m", "ziglang", "cc"),
            *FLAGS,
            *flags,
            *(f"-I{path}" for path in includes),
            *("-o", str(part)),
            *sources,
        ]
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise CompileError(
                f"{out.name}: the compiler failed with status {done.returncode}: "
                f"{_first_error(done.stderr)}"
            )
        part.replace(out)


def _first_error(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
