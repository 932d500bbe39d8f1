"""Where a trace of the scheduler's decisions goes."""

from __future__ import annotations

import os
from collections.abc import Callable

from runtime_py.batching import TraceRecorder
from runtime_py.errors import InvalidInput, InvalidType


def open_trace(
    trace: str | os.PathLike[str] | TraceRecorder | None,
) -> tuple[TraceRecorder | None, Callable[[], object]]:
    """The recorder, and what to call when nothing is recorded any more.

    Raises:
        InvalidInput: the file cannot be written.
        InvalidType: it is neither a path nor a recorder.
    """
    if trace is None or isinstance(trace, TraceRecorder):
        return trace, lambda: None
    if not isinstance(trace, str | os.PathLike):  # a number would be taken for an open file
        raise InvalidType(f"trace is {type(trace).__name__}, expected a path or a TraceRecorder")
    try:
        file = open(trace, "w", encoding="utf-8", newline="\n")  # noqa: SIM115
    except OSError as e:
        raise InvalidInput(
            f"the trace {os.fspath(trace)!r} cannot be written ({e.strerror}); choose another file"
        ) from None
    return TraceRecorder(file.write), file.close
