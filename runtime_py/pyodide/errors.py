"""Errors of the JavaScript package as errors of this one: the names are the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from runtime_py import errors
from runtime_py.errors import DeviceLost, OutOfMemory, VoleryError


def error_of(name: str, message: str) -> VoleryError:
    """The error for a JavaScript error of class ``name``; `DeviceLost` for a foreign one."""
    kind = getattr(errors, name, None)
    if kind is OutOfMemory:
        return OutOfMemory(message, bytes_requested=0)
    if isinstance(kind, type) and issubclass(kind, VoleryError):
        try:
            return kind(message)
        except TypeError:  # a class that wants more than words
            return VoleryError(message)
    return DeviceLost(f"{name}: {message}")


@contextmanager
def raised_in_page() -> Iterator[None]:
    """Turn what JavaScript throws inside the block into an error of this package."""
    from pyodide.ffi import JsException

    try:
        yield
    except JsException as e:
        thrown = e.js_error if hasattr(e, "js_error") else e
        raise error_of(str(thrown.constructor.name), str(thrown.message)) from None
