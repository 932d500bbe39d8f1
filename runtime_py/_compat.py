"""The differences between CPython and Pyodide, all in one place."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

IS_PYODIDE = sys.platform == "emscripten"

_MAX_DEFAULT_THREADS = 8
_P = ParamSpec("_P")
_T = TypeVar("_T")


def default_threads() -> int:
    """Threads for a model when the caller does not say: the cores we may use, at most 8."""
    if IS_PYODIDE:
        return 1
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(cores, _MAX_DEFAULT_THREADS)


def cache_folder(kind: str) -> Path:
    """Where files of a kind are kept that can be made again: per user, by the platform's custom."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "volery" / kind


def numpy_or_none() -> Any:
    """The numpy module, or None where it is not installed (Pyodide's own package)."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


class Worker:
    """Runs blocking functions off the event loop; inline where there are no threads.

    Threads start with the first call and end with `close`.
    """

    def __init__(self, max_threads: int = 1) -> None:
        self._max_threads = max_threads
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, fn: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Await ``fn(*args, **kwargs)``. Cancelling the wait does not stop the function."""
        if IS_PYODIDE:
            return fn(*args, **kwargs)
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(self._max_threads, thread_name_prefix="volery-worker")
        return await asyncio.wrap_future(self._pool.submit(fn, *args, **kwargs))

    def close(self, *, wait: bool = False) -> None:
        """Start no more functions; the threads end with the running ones. Idempotent.

        Args:
            wait: return when they have ended.
        """
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=wait, cancel_futures=True)
