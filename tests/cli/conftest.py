"""The tiny decoder as an artifact, and the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tests.generation.test_loading import write
from toolchain.cli.app import make_app

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def tiny_decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("decoder") / "tiny")


@pytest.fixture
def toolchain() -> Run:
    """Runs ``toolchain ARGUMENTS``: exit status, standard output and standard error."""
    runner = CliRunner()

    def run(*arguments: object, stdin: str | bytes = b"") -> Result:
        done = runner.invoke(make_app(), [str(a) for a in arguments], input=stdin)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run
