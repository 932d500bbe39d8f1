"""The error hierarchy of Volery.

The JavaScript package has the same names. Every message says what was found,
what was expected and what to do about it, on one line.
"""

from __future__ import annotations

from typing import Any


class VoleryError(Exception):
    """Base class of every error that Volery raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default a copy, as in another process, is made from `args` alone, and a class
        # with keyword arguments cannot be.
        return _rebuilt, (type(self), self.args), self.__dict__


class ArtifactError(VoleryError):
    """An artifact, or the model it is made from, cannot be used."""


class ArtifactMissing(ArtifactError):
    """A file that the artifact needs does not exist."""


class ArtifactCorrupt(ArtifactError):
    """A file is truncated, altered, or breaks the format's rules."""


class ArtifactUnsupported(ArtifactError):
    """A well-formed input that this version cannot handle."""


class AccuracyGate(ArtifactError):
    """Quantization lost more accuracy than the gate allows."""


class RequestError(VoleryError):
    """A request is wrong in itself; sending it again cannot help."""


class InvalidInput(RequestError, ValueError):
    """A value outside its documented range."""


class InvalidType(InvalidInput, TypeError):
    """A value of the wrong Python type."""


class TooLong(RequestError):
    """An input has more tokens than the model's limit.

    Attributes:
        num_tokens: tokens the input has, special tokens included.
        max_tokens: the limit it exceeds.
    """

    def __init__(self, message: str, *, num_tokens: int, max_tokens: int) -> None:
        super().__init__(message)
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


class NeverFits(RequestError):
    """A request that the configured budgets can never hold, however long it waits."""


class Overloaded(VoleryError):
    """The queue is full; nothing was computed.

    Attributes:
        retry_after_ms: when the queue is expected to have room again.
    """

    def __init__(self, message: str, *, retry_after_ms: float) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class DeadlineExceeded(VoleryError):
    """The request could not, or did not, finish before its deadline."""


class Aborted(VoleryError):
    """The request was cancelled by its owner, or its model was closed."""


class NonFinite(VoleryError):
    """The model produced NaN or infinity for this request."""


class OutOfMemory(VoleryError):
    """The backend could not allocate memory.

    Attributes:
        bytes_requested: the size of the allocation that failed.
    """

    def __init__(self, message: str, *, bytes_requested: int) -> None:
        super().__init__(message)
        self.bytes_requested = bytes_requested


class DeviceLost(VoleryError):
    """The backend died (a trap, a killed worker, a lost GPU); reload the model."""


def _rebuilt(kind: type[VoleryError], args: tuple[Any, ...]) -> VoleryError:
    return kind.__new__(kind, *args)
