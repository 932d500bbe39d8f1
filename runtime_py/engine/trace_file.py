"""Where a trace of the scheduler's decisions goes."""

from __future__ import annotations

import os
from collections.abc import Callable

from runtime_py.batching import TraceRecorder
from runtime_py.errors import InvalidInput


def open_trace(
    trace: str | os.PathLike[str] | TraceRecorder | None,
) -> tuple[TraceRecorder | None, Callable[[], object]]:
    """The recorder, and what to call when nothing is recorded any more.

    Raises:
        InvalidInput: the file cannot be written.
    """
    if trace is None or isinstance(trace, TraceRecorder):
        return trace, lambda: None
    try:
        file = open(trace, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
    except OSError as e:
        raise InvalidInput(
            f"the trace {os.fspath(trace)!r} cannot be written ({e.strerror}); choose another file"
        ) from None
    return TraceRecorder(file.write), file.close
