"""The stages of a long command: what runs, for how long, and how far it is."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

Progress = Callable[[str, float, str], None]
"""Called with a stage's name, the share of it that is done (0 to 1), and a remark or ""."""


class Stages:
    """Times stages and reports them; one stage runs at a time.

    Attributes:
        seconds: stage -> duration, of the stages that have ended.
    """

    def __init__(self, progress: Progress | None) -> None:
        self._report: Progress = progress or (lambda stage, share, remark: None)
        self._current = ""
        self._remark = ""
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Run the block as stage ``name``."""
        self._current, self._remark = name, ""
        start = time.perf_counter()
        self._report(name, 0.0, "")
        yield
        self.seconds[name] = time.perf_counter() - start
        self._report(name, 1.0, self._remark)

    def advance(self, share: float) -> None:
        """The current stage has done ``share`` of its work; only its end reports 1."""
        self._report(self._current, min(max(share, 0.0), 0.999), "")

    def say(self, remark: str) -> None:
        """What the current stage found, for its line when it ends."""
        self._remark = remark
