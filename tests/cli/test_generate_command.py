"""`toolchain generate`: prompts from everywhere, texts in order, errors in one line."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import runtime_py as rt
from tests.cli.conftest import Run
from tests.engine.tiny import run as run_async
from toolchain.cli import chat, generate
from toolchain.cli.generation_options import DEFAULTS, unescaped
from toolchain.cli.terminal import Writer, visible

ROOT = Path(__file__).parents[2]
OPTIONS = ("--executor", "reference", "--ignore-eos", "-m", "12")


@pytest.fixture(scope="module")
def answers(tiny_decoder: Path) -> dict[str, str]:
    """What the model itself says."""
    prompts = ["hello", "a b c", "zzz", "what?\nyes"]

    async def ask() -> dict[str, str]:
        async with await rt.load(tiny_decoder, executor="reference") as model:
            return {
                p: (await model.generate(p, max_tokens=12, ignore_eos=True)).text for p in prompts
            }

    return run_async(ask)


def test_one_prompt_is_its_text_alone(
    toolchain: Run, tiny_decoder: Path, answers: dict[str, str]
) -> None:
    done = toolchain("generate", tiny_decoder, "hello", *OPTIONS)
    assert (done.exit_code, done.stdout) == (0, answers["hello"] + "\n")
    assert "5 prompt tokens, 12 new in" in done.stderr
    quiet = toolchain("generate", tiny_decoder, "hello", *OPTIONS, "--quiet")
    assert (quiet.stdout, quiet.stderr) == (done.stdout, "")


def test_several_prompts_come_in_order(
    toolchain: Run, tiny_decoder: Path, answers: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "p.txt").write_bytes(b"\xef\xbb\xbfwhat?\nyes\n")
    done = toolchain(
        "generate",
        tiny_decoder,
        "hello",
        "-",
        "--file",
        tmp_path / "p.txt",
        *OPTIONS,
        stdin="zzz\n",
    )
    expected = "".join(
        f"[{i}] {' '.join(p.split())}\n{answers[p]}\n"
        for i, p in enumerate(("hello", "zzz", "what?\nyes"), 1)
    )
    assert (done.exit_code, done.stdout) == (0, expected)
    assert "3 prompts, " in done.stderr


def test_lines_of_standard_input_as_json(
    toolchain: Run, tiny_decoder: Path, answers: dict[str, str]
) -> None:
    done = toolchain(
        "generate", tiny_decoder, "--lines", "--json", *OPTIONS, stdin="hello\n\na b c\r\nzzz"
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["prompt"] for r in records] == ["hello", "a b c", "zzz"]
    for i, record in enumerate(records):
        assert record["index"] == i
        (completion,) = record["completions"]
        assert completion["text"] == answers[record["prompt"]]
        assert completion["finish_reason"] == "length"
        assert "logprobs" not in completion
        assert record["usage"] == {
            "prompt_tokens": len(record["prompt"]),
            "cached_tokens": 0,
            "completion_tokens": 12,
        }
        timing = record["timing"]
        assert 0 <= timing["queue_ms"] <= timing["ttft_ms"] <= timing["total_ms"]
        assert timing["tokens_per_s"] > 0


def test_samples_seeds_and_logprobs(toolchain: Run, tiny_decoder: Path) -> None:
    arguments = ("generate", tiny_decoder, "hello", *OPTIONS, "-t", "1", "-n", "2", "--seed", "7")
    done = toolchain(*arguments, "--json", "--logprobs", "0")
    (record,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert record["seed"] == 7
    first, second = record["completions"]
    assert first["token_ids"] != second["token_ids"]
    assert len(first["logprobs"]) == 12
    plain = toolchain(*arguments).stdout
    assert plain == f"[1.1] hello\n{first['text']}\n[1.2] hello\n{second['text']}\n"


def test_a_chat_and_stop_strings(
    toolchain: Run, tiny_decoder: Path, answers: dict[str, str]
) -> None:
    stop = answers["hello"][4:6]
    at = answers["hello"].index(stop)
    done = toolchain("generate", tiny_decoder, "hello", *OPTIONS, "--stop", stop, "--stop", r"\n")
    assert done.stdout.removesuffix("\n") == answers["hello"][:at]
    one = toolchain("generate", tiny_decoder, "hi", "--chat", "--json", *OPTIONS)
    two = toolchain("generate", tiny_decoder, "hi", "--chat", "--system", "s", "--json", *OPTIONS)
    usage = [json.loads(d.stdout)["usage"]["prompt_tokens"] for d in (one, two)]
    assert usage[1] - usage[0] == len("system\ns\n") + 2


def test_a_prompt_that_fails_does_not_stop_the_others(
    toolchain: Run, tiny_decoder: Path, answers: dict[str, str]
) -> None:
    arguments = ("generate", tiny_decoder, "hello", "x" * 500, "zzz", *OPTIONS)
    done = toolchain(*arguments)
    assert done.exit_code == 1
    assert answers["hello"] in done.stdout
    assert answers["zzz"] in done.stdout
    assert "error: prompt 2: the prompt has 500 tokens" in done.stderr
    records = [json.loads(line) for line in toolchain(*arguments, "--json").stdout.splitlines()]
    assert records[1]["error"]["type"] == "TooLong"
    assert "completions" in records[2]


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["", *OPTIONS], "", "the prompt has no tokens"),
        ([], "", "the prompt has no tokens"),
        (["--lines"], "\n\n", "the input is empty"),
        (["a", "-m", "401"], "", "max_tokens is 401, expected 1 to 400"),
        (["a", "--top-p", "0"], "", "top_p is 0.0, expected above 0 to 1"),
        (["a", "-n", "500"], "", "n is 500"),
        (["a", "--logprobs", "2"], "", "add --json"),
        (["a", "--system", "s"], "", "add --chat"),
        (["--file", "/no/such/file"], "", "cannot be read"),
        ([], b"\xff", "not UTF-8 at byte 0"),
        (["a", "--device", "cpu"], "", "does not use torch"),
    ],
)
def test_bad_usage_is_one_line(
    toolchain: Run, tiny_decoder: Path, arguments: list[str], stdin: str, words: str
) -> None:
    done = toolchain("generate", tiny_decoder, *arguments, stdin=stdin)
    assert done.exit_code == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert words in line


def test_an_embedding_model_is_told_apart(toolchain: Run, tmp_path: Path) -> None:
    from tests.engine.tiny import write_artifact

    done = toolchain("generate", write_artifact(tmp_path / "m"), "a", "--executor", "reference")
    assert "error: the model makes embeddings, it cannot generate text" in done.stderr
    missing = toolchain("generate", tmp_path / "nowhere", "a")
    assert "is not a folder" in missing.stderr


@pytest.mark.parametrize("command", [generate.generate, chat.chat])
def test_options_have_the_defaults_of_the_model(command: Callable[..., None]) -> None:
    parameters = inspect.signature(command).parameters
    assert {name: parameters[name].default for name in DEFAULTS} == DEFAULTS


def test_control_characters_are_shown_on_a_terminal_only() -> None:
    assert visible("a\x1b[2Jb\r\n\tü\x9b") == "a\\x1b[2Jb\\x0d\n\tü\\x9b"
    assert unescaped(r"\n\\n\t\q\\") == "\n\\n\t\\q\\"


def test_what_the_encoding_lacks_is_escaped() -> None:
    import io

    raw = io.BytesIO()
    writer = Writer(io.TextIOWrapper(raw, encoding="ascii"))
    writer.line("é\x1b")
    assert raw.getvalue() == b"\\xe9\x1b\n"


def test_ctrl_c_ends_it_and_a_reader_may_leave(tiny_decoder: Path) -> None:
    command = [sys.executable, "-m", "toolchain", "generate", str(tiny_decoder)]
    lines = "".join(f"{i}\n" for i in range(5000))
    for leave in (False, True):
        with subprocess.Popen(
            [*command, "--lines", "-m", "64", "--executor", "reference"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as process:
            assert process.stdin
            assert process.stdout
            assert process.stderr
            process.stdin.write(lines.encode())
            process.stdin.close()
            assert process.stdout.readline() == b"[1] 0\n"  # it works
            if leave:
                process.stdout.close()
            else:
                os.kill(process.pid, signal.SIGINT)
                process.stdout.read()
            assert b"Traceback" not in process.stderr.read()
            assert process.wait(60) == (0 if leave else 130)
