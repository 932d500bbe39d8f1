"""Writes an artifact's folder all at once or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runtime_py.artifact.manifest import MANIFEST
from runtime_py.errors import InvalidInput, VoleryError


def check_target(target: Path, *, force: bool) -> None:
    """``target`` may be written: it is absent, empty, or an artifact that ``force`` replaces.

    Raises:
        InvalidInput: something else is there, which is never deleted, or the folder that
            it would lie in cannot be written to.
    """
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            if not (target / MANIFEST).is_file():
                raise InvalidInput(
                    f"{target} exists and is not an artifact, so it is left alone; "
                    "choose another folder"
                )
            if not force:
                raise InvalidInput(f"{target} already holds an artifact; use --force to replace it")
        parents = Path(os.path.abspath(target)).parents
        parent = next(p for p in parents if p.exists())
        with tempfile.TemporaryDirectory(prefix=".volery-", dir=parent):
            pass  # permissions and read-only file systems show only so
    except OSError as e:
        raise InvalidInput(
            f"{target} cannot be written ({e.strerror}); choose another folder"
        ) from None


@contextlib.contextmanager
def atomic_folder(target: Path, *, force: bool) -> Iterator[Path]:
    """A new folder that becomes ``target`` when the block ends without an exception.

    Until then it lies beside ``target`` under a hidden name; on an exception it is
    removed, and an artifact that was there before stays as it was.

    Raises:
        InvalidInput: see `check_target`.
        VoleryError: the disk is full or fails.
    """
    check_target(target, force=force)
    target = Path(os.path.abspath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield staging
        staging.chmod(0o755)
        check_target(target, force=force)
        _replace(staging, target)
    except OSError as e:  # writing to an open file does not tell which one
        raise VoleryError(
            f"{target} cannot be written ({e.strerror or e}); free space there or choose "
            "another folder"
        ) from e
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _replace(staging: Path, target: Path) -> None:
    """Rename ``staging`` to ``target``, moving what is there out of the way first."""
    if not target.exists():
        staging.rename(target)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{target.name}-old-", dir=target.parent))
    target.rename(old)  # onto an empty folder
    try:
        staging.rename(target)
    except OSError:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)
