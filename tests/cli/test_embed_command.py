"""`toolchain embed` as a person runs it: real processes, the real model, real signals."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import runtime_py as rt

ROOT = Path(__file__).parents[2]
TEXTS = ["A swift sleeps on the wing.", "", "  ", "日本語 ☕ naïve", "word " * 600, "\u200b", "end"]


@pytest.fixture(scope="module")
def artifact(minilm_artifacts: Mapping[str, Path]) -> Path:
    return minilm_artifacts["i8"]


@pytest.fixture(scope="module")
def vectors(artifact: Path) -> np.ndarray:
    with rt.load_sync(artifact) as model:
        return model.embed(TEXTS)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "toolchain", "embed", *map(str, arguments)]


def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*arguments), cwd=ROOT, input=stdin, capture_output=True, check=False
    )


def test_lines_to_npy(artifact: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    source, output = tmp_path / "texts.txt", tmp_path / "out.npy"
    source.write_text("".join(t + "\n" for t in TEXTS), encoding="utf-8")
    done = run(artifact, source, "-o", output)
    assert done.returncode == 0, done.stderr.decode()
    assert np.load(output).tobytes() == vectors.tobytes()
    assert done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert len(lines) == 2
    assert f"{output}: 7 texts, " in lines[0]
    assert "1 cut to the model's limit" in lines[0]
    assert re.search(r"texts/s, \d+ steps? of", lines[1])


def test_stdin_csv_to_parquet(artifact: Path, vectors: np.ndarray, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    table = "key,body\n" + "".join(f'k{i},"{t}"\n' for i, t in enumerate(TEXTS))
    options = ("--format", "csv", "--column", "body", "--id", "key", "--quiet")
    done = run(artifact, "-o", output, *options, stdin=b"\xef\xbb\xbf" + table.encode())
    assert (done.returncode, done.stderr) == (0, b"")
    got = pq.read_table(output)
    assert got["id"].to_pylist() == [f"k{i}" for i in range(len(TEXTS))]
    assert got["text"].to_pylist() == TEXTS
    assert np.stack(got["embedding"].to_numpy()).tobytes() == vectors.tobytes()


def test_jsonl_to_jsonl_cut_to_64_dimensions(artifact: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"doc": {"body": t}}) + "\n" for t in TEXTS))
    options = ("--field", "doc.body", "--dimensions", "64", "--dtype", "float16", "--no-text")
    done = run(artifact, source, "-o", output, *options, "--threads", "1", "--batch-window", "2")
    assert done.returncode == 0, done.stderr.decode()
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [set(r) for r in rows] == [{"id", "embedding"}] * len(TEXTS)
    with rt.load_sync(artifact) as model:
        expected = model.embed(TEXTS, dimensions=64, dtype="float16")
    assert np.array([r["embedding"] for r in rows]).astype(np.float16).tobytes() == (
        expected.tobytes()
    )


@pytest.mark.parametrize(
    ("content", "options", "says"),
    [
        (b"ok\n\xff\n", (), "texts.txt, line 2: byte 0xff at offset 0 of the line is not UTF-8"),
        (b"ok\n", ("--prompt-name", "nope"), "prompt_name is 'nope', the model has"),
        (b"ok\n" + b"word " * 600, ("--truncate", "error"), "line 2: "),
        (b"ok\n", ("--column", "a"), "plain lines, which have no fields to choose"),
        (b"ok\n", ("--dimensions", "4000"), "dimensions is 4000, expected 1 to 384"),
        (b"ok\n", ("-o", "out.xyz"), "'out.xyz' has no known extension, expected one of .npy"),
        (b"ok\n", ("-o", "no/such/folder/out.npy"), "cannot write no/such/folder/out.npy.partial"),
        (b"ok\n", ("--field", "a", "--format", "csv"), "the input is read as csv; name its text"),
    ],
)
def test_a_fault_is_one_line(
    artifact: Path, tmp_path: Path, content: bytes, options: tuple[str, ...], says: str
) -> None:
    source = tmp_path / "texts.txt"
    source.write_bytes(content)
    done = run(artifact, source, "-o", tmp_path / "out.npy", *options)
    message = done.stderr.decode()
    assert done.returncode == 1, message
    assert says in message
    assert message.count("\n") == 1
    assert not (tmp_path / "out.npy").exists()


def test_E9_a_text_that_is_too_long_names_both_numbers(artifact: Path, tmp_path: Path) -> None:
    source = tmp_path / "texts.txt"
    source.write_text("ok\n" * 300 + "word " * 600 + "\nok\n")
    done = run(artifact, source, "-o", tmp_path / "out.npy", "--truncate", "error")
    assert re.search(rb"line 301: .*602 tokens.* 256", done.stderr)


def test_what_is_missing_is_named(artifact: Path, tmp_path: Path) -> None:
    done = run(tmp_path / "nowhere", "-o", tmp_path / "out.npy")
    assert done.returncode == 1
    assert b"manifest.json cannot be read" in done.stderr
    done = run(artifact, tmp_path / "nowhere.txt", "-o", tmp_path / "out.npy")
    assert done.returncode == 1
    assert b"nowhere.txt: No such file" in done.stderr
    assert run(artifact, "--nonsense").returncode == 2


class Terminal:
    """A command whose stderr is a terminal, so that it shows its progress."""

    def __init__(self, *arguments: str | Path, stdin: int = subprocess.DEVNULL) -> None:
        self._screen, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command(*arguments),
            cwd=ROOT,
            stdin=stdin,
            stderr=theirs,
            env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
        )
        os.close(theirs)
        self.text = ""

    def read_until(self, texts: int) -> None:
        """Read on until it shows that so many texts are embedded."""
        while not any(int(n) >= texts for n in re.findall(r"(\d+) texts", self.text)):
            got = self._read()
            assert got, f"ended before {texts} texts: {self.text}"

    def end(self) -> str:
        """Everything it wrote."""
        while self._read():
            pass
        self.process.wait()
        os.close(self._screen)
        return self.text

    def _read(self) -> str:
        try:
            got = os.read(self._screen, 4096).decode(errors="replace")
        except OSError:  # the other side is closed
            return ""
        self.text += got
        return got


class Feed:
    """A named pipe that gets ``lines`` written, and stays open until `close`."""

    def __init__(self, path: Path, lines: list[str]) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(path, lines))
        self._thread.start()

    def _write(self, path: Path, lines: list[str]) -> None:
        try:
            with path.open("w") as pipe:
                pipe.writelines(line + "\n" for line in lines)
                pipe.flush()
                self._done.wait()
        except BrokenPipeError:
            pass

    def close(self) -> None:
        self._done.set()
        self._thread.join()


def test_interrupted_killed_and_resumed(artifact: Path, tmp_path: Path) -> None:
    pipe, output = tmp_path / "texts.txt", tmp_path / "out.npy"
    os.mkfifo(pipe)
    lines = [f"bird number {i}" for i in range(240)]
    arguments = (artifact, pipe, "-o", output, "--batch-window", "8")

    feed = Feed(pipe, lines[:80])
    terminal = Terminal(*arguments)
    terminal.read_until(texts=40)
    terminal.process.send_signal(signal.SIGINT)
    assert re.search(r"interrupted after \d+ texts; the same command continues", terminal.end())
    assert terminal.process.returncode == 128 + signal.SIGINT
    feed.close()
    assert not output.exists()

    feed = Feed(pipe, lines[:200])
    terminal = Terminal(*arguments)
    terminal.read_until(texts=120)
    terminal.process.kill()
    terminal.end()
    feed.close()
    assert not output.exists()

    feed = Feed(pipe, lines)
    feed._done.set()
    done = run(*arguments)
    feed.close()
    message = done.stderr.decode()
    assert done.returncode == 0, message
    kept = re.search(r"240 texts \((\d+) from an earlier run\)", message)
    assert kept
    assert 40 <= int(kept[1]) < 240
    with rt.load_sync(artifact) as model:
        assert np.load(output).tobytes() == model.embed(lines).tobytes()
    assert {p.name for p in tmp_path.iterdir()} == {"texts.txt", "out.npy"}


def test_standard_input_cannot_resume_and_says_so(artifact: Path, tmp_path: Path) -> None:
    terminal = Terminal(artifact, "-o", tmp_path / "out.npy", stdin=subprocess.PIPE)
    assert terminal.process.stdin is not None
    terminal.process.stdin.write(b"one\ntwo\n")
    terminal.process.stdin.flush()
    terminal.read_until(texts=0)
    terminal.process.send_signal(signal.SIGTERM)
    text = terminal.end()
    terminal.process.stdin.close()
    assert "standard input cannot be read again" in text
    assert "Fatal" not in text
    assert terminal.process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []
