"""How a command ends that cannot go on, or must not: one line, a status, nothing left behind."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runtime_py.errors import Aborted
from tests.cli.conftest import Run
from toolchain.cli import interrupt

# A command that shows where it is, and is then sent a signal.
ENDED = """
import os, signal, sys, tempfile
from toolchain.cli import app, inspect

def stop(artifact):
    with tempfile.TemporaryDirectory(prefix="made-", dir=sys.argv[2]):
        os.kill(os.getpid(), {signal})
        raise AssertionError("the signal was not heard")

inspect.register = lambda typer: typer.command("inspect")(stop)
stop.__annotations__ = {{"artifact": str}}
app.main()
"""


@pytest.mark.parametrize(("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_a_command_as_an_exception_does(
    tmp_path: Path, name: str, status: int
) -> None:
    script = ENDED.format(signal=int(getattr(signal, name)))
    done = subprocess.run(
        [sys.executable, "-c", script, "inspect", str(tmp_path)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, b"")
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_modules_are_imported_is_quiet(tmp_path: Path) -> None:
    """An import may swallow the exception, and the command would run."""
    (tmp_path / "rich.py").write_text(
        "import os, signal\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "toolchain", "inspect", "nowhere"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}"},
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """`toolchain inspect` raises ``error``."""

    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr("toolchain.verify.inspect.inspect_artifact", fail)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "a/b"), "a/b: No space left on device"),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
        (OSError("the hub\nis away"), "the hub is away"),
        (
            ModuleNotFoundError("No module named 'onnx.reference'", name="onnx.reference"),
            "this command needs onnx, which is not installed; run `pip install 'volery[export]'`",
        ),
        (
            ModuleNotFoundError("No module named 'numpy'", name="numpy"),
            "this command needs numpy, which is not installed; run `pip install 'volery[native]'`",
        ),
    ],
)
def test_what_the_machine_lacks_is_one_line(
    toolchain: Run, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    failing(monkeypatch, error)
    done = toolchain("inspect", "x")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"error: {line}\n")
    assert "Traceback" in toolchain("--debug", "inspect", "x").stderr


@pytest.mark.parametrize("error", [ModuleNotFoundError("x", name="ours"), ZeroDivisionError()])
def test_what_is_our_fault_is_not_hidden(
    toolchain: Run, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing(monkeypatch, error)
    with pytest.raises(type(error)):
        toolchain("inspect", "x")


def test_export_without_its_packages(tmp_path: Path) -> None:
    script = "import sys; sys.modules['onnx'] = None; from toolchain.cli import app; app.main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "export", str(tmp_path), "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == (
        "error: this command needs onnx, which is not installed; "
        "run `pip install 'volery[export]'`\n"
    )


def test_work_in_a_thread_hears_that_the_command_ends() -> None:
    begun, checked = threading.Event(), threading.Event()
    ended: list[str] = []

    def work(check: Callable[[], None]) -> None:
        check()
        begun.set()
        assert checked.wait(60)
        try:
            check()
        finally:
            ended.append("work")

    async def main() -> None:
        task = asyncio.ensure_future(interrupt.in_thread(work))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        asyncio.get_running_loop().call_soon(checked.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == ["work"]

    asyncio.run(main())


def test_work_in_a_thread_that_ends_by_itself() -> None:
    assert asyncio.run(interrupt.in_thread(lambda check: 3)) == 3
    with pytest.raises(Aborted, match="mine"):
        asyncio.run(interrupt.in_thread(_fail))


def _fail(check: Callable[[], None]) -> None:
    raise Aborted("mine")
