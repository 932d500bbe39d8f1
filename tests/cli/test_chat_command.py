"""`toolchain chat` as a person uses it: a real terminal, keys, Ctrl-C, pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import runtime_py as rt
from tests.cli.conftest import Run
from tests.engine.tiny import run as run_async

ROOT = Path(__file__).parents[2]
OPTIONS = ("--executor", "reference", "-m", "8")


def ask(folder: Path, *questions: str, max_tokens: int = 8) -> list[str]:
    """The answers of a conversation, from the model itself."""

    async def talk() -> list[str]:
        answers, messages = [], []
        async with await rt.load(folder, executor="reference") as model:
            for question in questions:
                messages.append({"role": "user", "content": question})
                answers.append((await model.chat(messages, max_tokens=max_tokens)).text)
                messages.append({"role": "assistant", "content": answers[-1]})
        return answers

    return run_async(talk)


def test_piped_lines_are_messages_and_answers_are_all_there_is(
    toolchain: Run, tiny_decoder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "chat.json"
    script = f"hi\n\nthere\\\nfriend\n/undo\n//slash\n/save {path}\n/nonsense\n/exit\nnever\n"
    done = toolchain("chat", tiny_decoder, *OPTIONS, stdin=script)
    first, second = ask(tiny_decoder, "hi", "there\nfriend")
    third = ask(tiny_decoder, "hi", "/slash")[1]
    assert done.stdout == f"{first}\n{second}\n{third}\n"
    assert done.exit_code == 0
    assert "taken back: there" in done.stderr
    assert "there is no command /nonsense" in done.stderr
    saved = json.loads(path.read_text())
    assert [m["content"] for m in saved["messages"]] == ["hi", first, "/slash", third]
    again = toolchain("chat", tiny_decoder, *OPTIONS, stdin=f"/load {path}\n/retry\n/stats\n")
    assert again.stdout == f"{third}\n"
    assert re.search(r"8 tokens in .* s: first after", again.stderr)
    assert re.search(r"2 turns, \d+ steps, \d+ tokens, cache", again.stderr)


def test_once_is_for_scripts(toolchain: Run, tiny_decoder: Path) -> None:
    done = toolchain("chat", tiny_decoder, *OPTIONS, "--once", "hi", stdin="ignored\n")
    assert (done.exit_code, done.stdout) == (0, ask(tiny_decoder, "hi")[0] + "\n")


def test_errors_do_not_end_the_conversation(toolchain: Run, tiny_decoder: Path) -> None:
    script = f"hi\n/set heat 3\n{'x' * 900}\n/load nowhere.json\nthere\n"
    done = toolchain("chat", tiny_decoder, *OPTIONS, stdin=script)
    assert done.stdout.splitlines() == ask(tiny_decoder, "hi", "there")
    assert "error: there is no option 'heat'" in done.stderr
    assert re.search(r"error: the prompt has 9\d\d tokens", done.stderr)
    assert "error: nowhere.json cannot be read" in done.stderr


def test_a_full_context_forgets_the_oldest_exchange(toolchain: Run, tiny_decoder: Path) -> None:
    script = "".join(f"{c * 100}\n" for c in "abcd")
    done = toolchain("chat", tiny_decoder, *OPTIONS, stdin=script)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 4
    assert "(the context is full: 1 of the oldest turns forgotten)" in done.stderr


def test_models_that_cannot_chat(toolchain: Run, tmp_path: Path) -> None:
    from tests.engine.tiny import write_artifact
    from tests.generation.test_loading import write

    for folder in (write_artifact(tmp_path / "e"), write(tmp_path / "d", chat_template=None)):
        done = toolchain("chat", folder, "--executor", "reference", "--once", "hi")
        assert done.exit_code == 1
        assert "has no chat template" in done.stderr


class Terminal:
    """A process with a terminal of its own; `until` reads what it shows."""

    def __init__(self, *arguments: object) -> None:
        pid, self.fd = pty.fork()
        if pid == 0:
            os.chdir(ROOT)
            os.environ["TERM"] = "xterm"
            command = [sys.executable, "-m", "toolchain", "chat", *map(str, arguments)]
            os.execv(sys.executable, command)
        self.pid = pid
        self.shown = ""

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def until(self, words: str) -> str:
        """What is shown up to ``words``, which must come within a minute."""
        deadline = time.monotonic() + 60
        while words not in self.shown:
            assert time.monotonic() < deadline, self.shown
            try:
                self.shown += os.read(self.fd, 4096).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended: {self.shown!r}") from None
        before, _, self.shown = self.shown.partition(words)
        return before

    def end(self) -> int:
        """Its exit status."""
        while True:
            try:
                if not os.read(self.fd, 4096):
                    break
            except OSError:  # Linux: the other side is closed
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(tiny_decoder: Path) -> Iterator[Terminal]:
    made = Terminal(tiny_decoder, "--executor", "reference", "-m", "300", "--seed", "3")
    yield made
    os.close(made.fd)
    try:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it ended by itself


def test_G9_ctrl_c_stops_the_answer_and_not_the_program(terminal: Terminal) -> None:
    terminal.until("/help lists the commands")
    terminal.until("> ")
    terminal.type("/set temperature 1\n")
    terminal.until("> ")
    terminal.type("hello\n")
    terminal.until("hello\r\n")
    while not terminal.shown.strip():  # the answer streams
        terminal.shown += os.read(terminal.fd, 64).decode(errors="replace")
    terminal.type("\x03")
    terminal.until("(stopped)")
    terminal.until("> ")
    terminal.type("/stats\n")
    assert int(re.search(r"(\d+) tokens in", terminal.until("then")).group(1)) < 300  # type: ignore[union-attr]
    terminal.until("> ")
    terminal.type("half a li\x03")  # at the prompt it drops the line
    terminal.until("> ")
    terminal.type("/set max_tokens 3\n")
    terminal.until("> ")
    terminal.type("again\n")  # and the model still answers
    terminal.until("again\r\n")
    terminal.until("(cut at max_tokens")
    terminal.until("> ")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_sigterm_ends_it(tiny_decoder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "toolchain", "chat", str(tiny_decoder), "--executor", "reference"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"/set max_tokens 2\nhi\n")
        process.stdout.read(1)
        process.terminate()
        assert process.wait(60) in (143, -signal.SIGTERM)
