"""A `ModelExecutor` over the JavaScript hands, for Python in a page (Pyodide).

Steps cross as flat arrays and come back through one callback. A page's threads are the
hands' own workers: Python has none here, and `submit` never blocks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from runtime_py.errors import Aborted, InvalidInput
from runtime_py.executors.base import ExecutorLimits, Sampled, Step, StepResult
from runtime_py.executors.check import Bounds, check_step
from runtime_py.executors.completion import Done
from runtime_py.pyodide.errors import error_of
from runtime_py.pyodide.step_words import sampling_numbers, step_words

_EMPTY: memoryview[float] = memoryview(b"").cast("f")


class PyodideExecutor:
    """Runs steps of a model that the hands hold.

    Args:
        bounds: the program's vocabulary and positions.
        limits: of the hands' model.
        width: f32 columns of an output row.
        variant: the wasm build that the hands chose.
    """

    name = "pyodide"

    def __init__(self, bounds: Bounds, limits: ExecutorLimits, width: int, variant: str) -> None:
        self.variant = variant
        self._bounds = bounds
        self._limits = limits
        self._width = width
        self._bridge: Any = None
        self._callback: Any = None
        self._waiting: dict[int, tuple[Done, Step]] = {}
        self._next_id = 0

    def attach(self, bridge: Any, callback: Any) -> None:
        """Take over the JavaScript bridge, and the proxy of `completed` that it calls."""
        self._bridge, self._callback = bridge, callback

    @property
    def limits(self) -> ExecutorLimits:
        return self._limits

    def run(self, step: Step) -> StepResult:
        """Raises:
        InvalidInput: always: a page's main thread cannot wait for a step.
        """
        raise InvalidInput(
            "run() would block the page, where nothing may wait; use submit(), or the "
            "asynchronous methods of the model"
        )

    def submit(self, step: Step, done: Callable[[StepResult | BaseException], None]) -> None:
        """Start ``step``; ``done`` is called on the event loop's thread.

        Raises:
            Aborted: the executor is closed.
            InvalidInput: the step is outside the limits, or too many are in flight.
        """
        from pyodide.ffi import to_js

        if self._bridge is None:
            raise Aborted("the executor is closed; load the model again")
        check_step(self._bounds, self._limits, step)
        if len(self._waiting) >= self._limits.concurrent_steps:
            raise InvalidInput(
                f"{len(self._waiting)} steps are in flight, expected at most "
                f"{self._limits.concurrent_steps}"
            )
        step_id, self._next_id = self._next_id, self._next_id + 1
        self._waiting[step_id] = (done, step)
        words = to_js(step_words(step, is_decoder=self._limits.kv_blocks > 0))
        numbers = to_js(sampling_numbers(step.sampling)) if step.sampling is not None else None
        self._bridge.submit(step_id, words, numbers, step.threads)

    def completed(
        self,
        step_id: int,
        error_name: str | None,
        error_message: str,
        output: Any,
        statuses: Any,
        token_ids: Any,
        logprobs: Any,
        top: str,
        device_ns: float,
    ) -> None:
        """What the bridge calls when a step ends."""
        done, step = self._waiting.pop(step_id)
        if error_name is not None:
            done(error_of(error_name, error_message))
            return
        values = _EMPTY
        if output is not None:
            data = output.to_bytes()
            values = memoryview(data).cast("f", (len(data) // (4 * self._width), self._width))
        fine = bytes(len(step.seqs)) if statuses is None else statuses.to_bytes()
        sampled: tuple[Sampled, ...] = ()
        if token_ids is not None:
            tops = json.loads(top) if top else None
            sampled = tuple(
                Sampled(token, logprob, _pairs(tops[i]) if tops else ())
                for i, (token, logprob) in enumerate(
                    zip(token_ids.to_py(), logprobs.to_py(), strict=True)
                )
            )
        done(StepResult(values, fine, int(device_ns), sampled))

    def close(self) -> None:
        """Let go of the model; what is in flight still ends. Idempotent."""
        bridge, self._bridge = self._bridge, None
        if bridge is None:
            return
        callback, self._callback = self._callback, None
        # The hands let steps in flight end, which still call back.
        bridge.close().finally_(callback.destroy)


def _pairs(found: list[list[float]]) -> tuple[tuple[int, float], ...]:
    return tuple((int(token), logprob) for token, logprob in found)
