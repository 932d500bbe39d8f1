"""Hands a step's outcome to the one who submitted it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from runtime_py.executors.base import StepResult

Done = Callable[[StepResult | BaseException], None]

_log = logging.getLogger(__name__)


def complete(done: Done, compute: Callable[[], StepResult], over: Callable[[], None]) -> None:
    """Call ``compute``, then ``over``, then ``done`` with the result or the error.

    ``done`` runs on a thread of the executor: what it raises would reach nobody, so it
    is logged.
    """
    result: StepResult | BaseException
    try:
        result = compute()
    except BaseException as error:  # whatever it is, its owner is waiting for it
        result = error
    over()
    try:
        done(result)
    except Exception:
        _log.exception("the completion callback of a step failed")
