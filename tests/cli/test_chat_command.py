"""`toolchain chat` as a person uses it: a real terminal, keys, Ctrl-C, pipes."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

import runtime_py as rt
from tests.cli.conftest import Run
from tests.engine.tiny import run as run_async
from tests.generation.test_loading import write

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
    assert done.exit_code == 0
    assert toolchain("chat", tiny_decoder, *OPTIONS, stdin=script + "/undo\n/load x\n").exit_code


def test_a_full_context_forgets_the_oldest_exchange(toolchain: Run, tiny_decoder: Path) -> None:
    script = "".join(f"{c * 100}\n" for c in "abcd")
    done = toolchain("chat", tiny_decoder, *OPTIONS, stdin=script)
    assert done.exit_code == 0
    assert len(done.stdout.splitlines()) == 4
    assert "(the context is full: 1 of the oldest turns forgotten)" in done.stderr


def test_models_that_cannot_chat(toolchain: Run, tmp_path: Path) -> None:
    from tests.engine.tiny import write_artifact

    for folder in (write_artifact(tmp_path / "e"), write(tmp_path / "d", chat_template=None)):
        done = toolchain("chat", folder, "--executor", "reference", "--once", "hi")
        assert done.exit_code == 1
        assert "has no chat template" in done.stderr


_ASK_POSITION = "\x1b[6n"
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x08")


class Terminal:
    """A process with a terminal of its own; `until` reads what it shows, without escapes."""

    def __init__(self, *arguments: object) -> None:
        pid, self.fd = pty.fork()
        if pid == 0:
            os.chdir(ROOT)
            os.environ["TERM"] = "xterm"
            command = [sys.executable, "-m", "toolchain", "chat", *map(str, arguments)]
            os.execv(sys.executable, command)
        self.pid = pid
        self._raw = self.shown = ""
        termios.tcsetwinsize(self.fd, (24, 80))

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def read(self) -> None:
        """Wait for more of what it shows, five minutes at most."""
        assert select.select([self.fd], [], [], 300)[0], f"nothing more came: {self.shown!r}"
        try:
            self._raw += os.read(self.fd, 4096).decode(errors="replace")
        except OSError:  # Linux: the other side is closed
            raise AssertionError(f"it ended: {self.shown!r}") from None
        for _ in range(self._raw.count(_ASK_POSITION)):
            self.type("\x1b[24;1R")  # as a terminal answers, at its last line
        whole, escape, begun = self._raw.rpartition("\x1b")
        if escape and not _ESCAPE.match(escape + begun):
            self._raw = escape + begun
        else:
            whole, self._raw = self._raw, ""
        self.shown += _ESCAPE.sub("", whole)

    def until(self, words: str) -> str:
        """What is shown up to ``words``."""
        while words not in self.shown:
            self.read()
        before, _, self.shown = self.shown.partition(words)
        return before

    def until_either(self, *words: str) -> str:
        """Which of ``words`` is shown first."""
        while not (found := [w for w in words if w in self.shown]):
            self.read()
        first = min(found, key=self.shown.index)
        self.until(first)
        return first

    def end(self) -> int:
        """Its exit status."""
        while True:
            try:
                if not os.read(self.fd, 4096):
                    break
            except OSError:
                break
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A chat with a model that never ends by itself: 300 tokens an answer."""
    endless = write(tmp_path / "endless", eos_token_ids=[])
    made = Terminal(endless, "--executor", "reference", "-m", "300")
    yield made
    os.close(made.fd)
    try:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # it ended by itself


def test_G9_ctrl_c_stops_the_answer_and_not_the_program(terminal: Terminal) -> None:
    terminal.until("/help lists the commands")
    for _ in range(20):  # a machine that is busy elsewhere may let the answer run to its end
        terminal.until(">")
        terminal.type("hello\n")
        terminal.until("hello\r\r\n")
        while not terminal.shown.strip():  # the answer streams
            terminal.read()
        terminal.type("\x03")
        if terminal.until_either("(stopped)", "(cut at max_tokens") == "(stopped)":
            break
    terminal.until(">")
    terminal.type("/stats\n")
    assert int(re.search(r"(\d+) tokens in", terminal.until("then")).group(1)) < 300  # type: ignore[union-attr]
    terminal.until(">")
    terminal.type("half a li\x03")  # at the prompt it drops the line
    terminal.until(">")
    terminal.type("/set max_tokens 3\n")
    terminal.until(">")
    terminal.type("again\n")  # and the model still answers
    terminal.until("again\r\r\n")
    terminal.until("(cut at max_tokens")
    terminal.until(">")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_ctrl_c_at_any_moment_of_the_prompt(terminal: Terminal) -> None:
    terminal.until("/help lists the commands")
    for _ in range(20):  # as soon as the prompt is drawn
        terminal.until(">")
        terminal.type("/sys\x03")
    terminal.until(">")
    terminal.type("/set max_tokens 3\n/set\n")
    terminal.until("max_tokens = 3")
    terminal.until(">")
    terminal.type("\x04")
    assert terminal.end() == 0


def test_what_is_pasted_is_one_message_and_tab_completes_commands(
    terminal: Terminal, tmp_path: Path
) -> None:
    path = tmp_path / "chat.json"
    terminal.type("/set max_tokens 2\n\x1b[200~one\ntwo\x1b[201~\n")
    terminal.until("(cut at max_tokens")
    terminal.until(">")
    terminal.type("three\x1b\rfour\n")  # Alt-Enter
    terminal.until("(cut at max_tokens")
    terminal.until(">")
    terminal.type(f"/sa\t {path}\n")
    terminal.until("saved 4 messages")
    asked = [m["content"] for m in json.loads(path.read_text())["messages"] if m["role"] == "user"]
    assert asked == ["one\ntwo", "three\nfour"]
    terminal.type("/exit\n")
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
        assert process.wait(300) in (143, -signal.SIGTERM)
