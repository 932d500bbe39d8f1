"""The commands as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.artifact.small import small_model, write_small
from toolchain.cli.app import make_app


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("cli") / "small", small_model())


def test_inspect_prints_text_and_json(artifact: Path) -> None:
    runner = CliRunner()
    text = runner.invoke(make_app(), ["inspect", str(artifact)])
    assert text.exit_code == 0, text.output
    for word in ("attention", "I8B32", "small (bert)", "program.bin"):
        assert word in text.output
    result = runner.invoke(make_app(), ["inspect", "--json", str(artifact)])
    facts = json.loads(result.stdout)
    assert facts["limits"]["max_tokens"] == 64
    assert facts["ops"][0]["kind"] == "embed"


@pytest.mark.parametrize("command", ["inspect", "verify"])
def test_errors_are_one_line_without_a_traceback(command: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(make_app(), [command, str(tmp_path / "nothing")])
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    debug = CliRunner().invoke(make_app(), ["--debug", command, str(tmp_path / "nothing")])
    assert debug.exit_code == 1
    assert "Traceback" in debug.stderr


def test_wrong_usage_exits_with_2() -> None:
    assert CliRunner().invoke(make_app(), ["export"]).exit_code == 2
    assert CliRunner().invoke(make_app(), ["frobnicate"]).exit_code == 2


def test_without_the_extra_the_cure_is_named() -> None:
    code = "import sys; sys.modules['typer'] = None\nfrom toolchain.__main__ import main\nmain()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 1
    assert result.stderr.strip() == (
        "error: the command line needs typer, which is not installed; "
        "run `pip install 'volery[cli]'`"
    )


def test_help_is_light() -> None:
    """No command loads torch, transformers or ONNX before it runs."""
    code = (
        "import sys\nfrom toolchain.cli.app import make_app\nmake_app()\n"
        "heavy = {'torch', 'transformers', 'onnx', 'onnxruntime', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy - {'numpy'} else 0)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert result.returncode == 0, result.stderr
