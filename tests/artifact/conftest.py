"""Fixtures: an artifact to read, and copies of it to damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.artifact.small import small_model, write_small


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small artifact in several shards, with tensors split between them; do not change it."""
    folder = tmp_path_factory.mktemp("artifact") / "small"
    return write_small(folder, small_model(), max_bytes=10_000)


@pytest.fixture
def artifact_copy(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may damage."""
    return Path(shutil.copytree(pristine, tmp_path / "copy"))


@pytest.fixture(scope="session")
def copies(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    """Makes fresh copies, for tests that need many."""
    root = tmp_path_factory.mktemp("copies")
    numbers = iter(range(1 << 30))

    def make() -> Path:
        return Path(shutil.copytree(pristine, root / str(next(numbers))))

    return make
