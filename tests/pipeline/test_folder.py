"""An artifact appears whole or not at all, and nothing else is ever replaced."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from runtime_py.errors import InvalidInput, VoleryError
from toolchain.pack.folder import atomic_folder, check_target


def make(target: Path, text: str, *, force: bool = False) -> None:
    with atomic_folder(target, force=force) as folder:
        (folder / "manifest.json").write_text(text)


def fail_halfway(target: Path, error: type[BaseException] | BaseException) -> None:
    with atomic_folder(target, force=False) as folder:
        (folder / "manifest.json").write_text("half")
        raise error


def leftovers(parent: Path, target: Path) -> list[Path]:
    return [p for p in parent.iterdir() if p != target]


def test_it_appears_when_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with atomic_folder(target, force=False) as folder:
        (folder / "manifest.json").write_text("1")
        assert not target.exists()
    assert (target / "manifest.json").read_text() == "1"
    assert leftovers(target.parent, target) == []


def test_where_nothing_can_be_written_is_told_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "out", tmp_path / "file" / "deep" / "out"):
        with pytest.raises(InvalidInput, match=r"out cannot be written .*choose another folder"):
            check_target(target, force=False)
    check_target(tmp_path / "deep" / "out", force=False)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failure_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    target = tmp_path / "out"
    with pytest.raises(error):
        fail_halfway(target, error)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_names_the_folder(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with pytest.raises(VoleryError, match=r"out cannot be written \(No space left on device\)"):
        fail_halfway(target, OSError(errno.ENOSPC, "No space left on device"))
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    make(target, "old")
    with pytest.raises(ValueError, match="stop"), atomic_folder(target, force=True):
        raise ValueError("stop")
    assert (target / "manifest.json").read_text() == "old"
    assert leftovers(tmp_path, target) == []


def test_force_replaces_an_artifact_only(tmp_path: Path) -> None:
    target = tmp_path / "out"
    make(target, "old")
    with pytest.raises(InvalidInput, match="--force"):
        make(target, "new")
    make(target, "new", force=True)
    assert (target / "manifest.json").read_text() == "new"
    assert leftovers(tmp_path, target) == []
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    for force in (True, False):
        with pytest.raises(InvalidInput, match="not an artifact"):
            make(precious, "new", force=force)
    assert (precious / "thesis.txt").read_text() == "years of work"
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(InvalidInput, match="not an artifact"):
        check_target(file, force=True)


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    make(target, "x")
    assert (target / "manifest.json").read_text() == "x"
