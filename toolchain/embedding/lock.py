"""Keeps two processes from writing the same partial output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runtime_py.errors import VoleryError


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold an advisory lock on ``path`` (created, removed at the end); the kernel drops it
    when the process dies. Where the platform has no ``flock``, nothing is locked.

    Raises:
        VoleryError: another process holds it, or the file cannot be created.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    try:
        lock = path.open("wb")
    except OSError as e:
        raise VoleryError(f"cannot write {path}: {e.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise VoleryError(
                f"another process is writing {path.with_suffix('')}; wait for it or stop it"
            ) from None
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
