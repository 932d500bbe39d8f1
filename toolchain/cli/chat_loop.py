"""The terminal side of a chat: reading lines, streaming answers, commands."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from runtime_py.engine import EngineStats
from runtime_py.errors import DeviceLost, TooLong, VoleryError
from runtime_py.generation.results import TextPiece
from runtime_py.sync import SyncModel
from toolchain.cli.chat_session import ChatSession
from toolchain.cli.terminal import Writer, visible

if TYPE_CHECKING:
    from toolchain.cli.line_editor import LineEditor

_HELP = """\
/help               this list
/system [TEXT]      show or set the system message
/reset              forget everything that was said
/undo               take your last message back, with its answer
/retry              answer your last message again
/save FILE          write the conversation as JSON
/load FILE          continue a saved conversation
/set [NAME VALUE]   show or change options of the answers; VALUE default undoes a change
/stats              tokens and times of the last answer, and of the model
/exit               leave; so does Ctrl-D
Alt-Enter, or \\ at the end of a line, continues on the next; what is pasted is one message.
Ctrl-C stops an answer. // begins a message that begins with /."""
_COMMANDS = re.findall(r"^/\w+", _HELP, re.MULTILINE)


class ChatLoop:
    """Reads messages until their end; answers and commands until then.

    Ctrl-C while an answer streams keeps what has come of it; at the prompt it drops the
    line. Without a terminal nothing but answers is written to standard output.
    """

    def __init__(self, model: SyncModel, session: ChatSession) -> None:
        self._model, self._session = model, session
        self._out = Writer()
        self._interactive = sys.stdin is not None and sys.stdin.isatty() and self._out.interactive
        self._editor: LineEditor | None = None
        self._last = "nothing has been answered yet"
        self._status = 0

    def run(self) -> int:
        """The conversation, to its end; the command's exit status."""
        if self._interactive:
            from toolchain.cli.line_editor import LineEditor  # slow to import

            self._editor = LineEditor(_COMMANDS)
            self._say(f"{self._model.info.id}: /help lists the commands, /exit leaves")
        going_on = True
        while going_on:
            try:
                going_on = self._turn()
            except VoleryError as e:
                self._status, going_on = 1, not isinstance(e, DeviceLost)
                self._error(e)
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                self._out.line()
        return 0 if self._interactive else self._status

    def _turn(self) -> bool:
        """One message or command; whether to go on."""
        line = self._message()
        if line is None:
            return False
        if line.startswith("/") and not line.startswith("//"):
            return self._command(line)
        if not line.strip():
            return True
        self._status = self.answer(line[1:] if line.startswith("//") else line)
        return self._interactive or not self._status

    def answer(self, text: str) -> int:
        """Say ``text`` and stream what comes back; 130 if it was stopped.

        Raises:
            VoleryError: there was no answer; the message is not part of the conversation.
        """
        session = self._session
        before = list(session.messages)
        session.ask(text)
        try:
            return self._stream()
        except VoleryError:
            session.messages = before
            raise

    def _stream(self) -> int:
        session, parts = self._session, list[str]()
        started, first, tokens, stopped = time.monotonic(), 0.0, 0, False
        reason: str | None = None
        try:
            for piece in self._pieces():
                first = first or time.monotonic()
                tokens += 1
                parts.append(piece.text)
                reason = piece.finish_reason
                self._out.write(piece.text)
        except KeyboardInterrupt:
            stopped = True
        finally:
            self._out.end_line()
        answer = "".join(parts)
        session.answered(answer)
        seconds = time.monotonic() - started
        rate = (tokens - 1) / max(time.monotonic() - first, 1e-9) if tokens > 1 else 0.0
        self._last = (
            f"{tokens:,} tokens in {seconds:.2f} s: first after {(first - started) * 1e3:,.0f} ms, "
            f"then {rate:,.1f} tokens/s"
            if tokens
            else "the last answer was stopped before its first token"
        )
        if stopped:
            self._say("(stopped)")
        elif reason == "length":
            self._say("(cut at max_tokens, or where the context ends)")
        return 130 if stopped else 0

    def _pieces(self) -> Iterator[TextPiece]:
        """The answer's pieces; the oldest exchanges go when the context is full."""
        session, forgotten = self._session, 0
        while True:
            stream = self._model.chat_stream(session.messages, **session.options)
            try:
                for piece in stream:
                    if forgotten:
                        self._say(
                            f"(the context is full: {forgotten} of the oldest turns forgotten)"
                        )
                        forgotten = 0
                    yield piece
                return
            except TooLong:
                if not session.forget_oldest():
                    raise
                forgotten += 1
            finally:
                stream.close()

    # --- commands

    def _command(self, line: str) -> bool:
        """Carry out a /command; False to leave."""
        name, _, rest = line.strip().partition(" ")
        rest, session = rest.strip(), self._session
        match name, rest:
            case (("/exit" | "/quit"), _):
                return False
            case "/help", _:
                self._say(_HELP)
            case "/system", "":
                self._say(session.system or "there is no system message")
            case "/system", text:
                session.system = text
            case "/reset", _:
                session.reset()
                self._say("forgotten")
            case "/undo", _:
                self._say(f"taken back: {session.undo()}")
            case "/retry", _:
                before = list(session.messages)
                try:
                    self.answer(session.undo())
                except VoleryError:
                    session.messages = before
                    raise
            case (("/save" | "/load"), ""):
                self._say(f"{name} needs the name of a file")
            case "/save", path:
                session.save(Path(path).expanduser())
                self._say(f"saved {len(session.messages)} messages")
            case "/load", path:
                session.load(Path(path).expanduser())
                self._say(f"loaded {len(session.messages)} messages")
            case "/set", "":
                for option, value in session.settings().items():
                    self._say(f"{option} = {'none' if value is None else value}")
            case "/set", setting:
                option, _, value = setting.partition(" ")
                session.set(option, value.strip())
            case "/stats", _:
                self._say(self._last)
                self._say(_engine(self._model.stats(), session))
            case _:
                self._say(f"there is no command {name}; /help lists them")
        return True

    # --- the terminal

    def _message(self) -> str | None:
        """What is typed or piped; a line that ends with a backslash goes on. None at the end."""
        try:
            line = self._line("> ")
            while line.endswith("\\"):
                line = line[:-1] + "\n" + self._line("… ")
        except EOFError:
            if self._interactive:
                self._out.line()
            return None
        return line

    def _line(self, prompt: str) -> str:
        if self._editor is not None:
            return self._editor.read(prompt)
        line = sys.stdin.readline() if sys.stdin is not None else ""
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    def _say(self, text: str) -> None:
        """Something that is not the model's."""
        stream = sys.stdout if self._interactive else sys.stderr
        for line in text.split("\n"):
            shown = visible(line)
            print(f"\x1b[2m{shown}\x1b[0m" if self._interactive else shown, file=stream)
        stream.flush()

    def _error(self, error: VoleryError) -> None:
        self._out.end_line()
        self._say("error: " + " ".join(str(error).splitlines()))


def _engine(stats: EngineStats, session: ChatSession) -> str:
    kv = stats.kv
    cache = ""
    if kv is not None:
        share = 100 * (1 - kv.free_blocks / kv.num_blocks)
        hits = 100 * kv.cached_tokens / max(kv.queried_tokens, 1)
        cache = f", cache {share:.0f}% in use, {hits:.0f}% of prompt tokens reused"
    return f"{session.turns} turns, {stats.steps:,} steps, {stats.tokens:,} tokens{cache}"
