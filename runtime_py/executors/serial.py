"""What executors that run one step at a time share: the lock, the thread, the end."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from runtime_py.errors import Aborted, InvalidInput
from runtime_py.executors.base import ExecutorLimits, Step, StepResult
from runtime_py.executors.check import Bounds, check_step
from runtime_py.executors.completion import Done, complete


class SerialExecutor:
    """A `ModelExecutor` whose backend runs one step at a time.

    A subclass gives `_execute`. `run` computes on the calling thread, `submit` on one
    thread of its own, started when it is first needed.
    """

    name = "serial"

    def __init__(self, bounds: Bounds, limits: ExecutorLimits) -> None:
        self._bounds = bounds
        self._limits = limits
        self._busy = Lock()  # held while a step computes
        self._state = Lock()  # guards the fields below
        self._in_flight = 0
        self._closed = False
        self._thread: ThreadPoolExecutor | None = None

    @property
    def limits(self) -> ExecutorLimits:
        return self._limits

    def _execute(self, step: Step) -> StepResult:
        raise NotImplementedError

    def _release(self) -> None:
        """Drop what the backend holds; called once, with no step in flight."""

    def run(self, step: Step) -> StepResult:
        """Execute ``step`` on the calling thread.

        Raises:
            InvalidInput: the step is outside the limits or malformed.
            Aborted: the executor is closed.
        """
        check_step(self._bounds, self._limits, step)
        return self._exclusive(step)

    def submit(self, step: Step, done: Done) -> None:
        """Start ``step``; ``done`` gets its result or its error, once, on another thread.

        Raises:
            InvalidInput: the step is outside the limits, malformed, or one too many.
            Aborted: the executor is closed.
        """
        check_step(self._bounds, self._limits, step)
        with self._state:
            if self._closed:
                raise self._closed_error()
            if self._in_flight >= self._limits.concurrent_steps:
                raise InvalidInput(
                    f"{self._in_flight} steps are in flight, the executor takes "
                    f"{self._limits.concurrent_steps}; wait for one to finish"
                )
            self._in_flight += 1
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"volery-{self.name}")
            self._thread.submit(self._answer, step, done)

    def close(self) -> None:
        """Wait for steps in flight and free everything. Idempotent."""
        with self._state:
            closed, self._closed = self._closed, True
            thread = self._thread
        if thread is not None:
            thread.shutdown(wait=True)
        if not closed:
            with self._busy:
                self._release()

    def _exclusive(self, step: Step, submitted: bool = False) -> StepResult:
        with self._busy:
            if self._closed and not submitted:
                raise self._closed_error()
            return self._execute(step)

    def _answer(self, step: Step, done: Done) -> None:
        complete(done, lambda: self._exclusive(step, submitted=True), self._step_over)

    def _step_over(self) -> None:
        with self._state:
            self._in_flight -= 1

    def _closed_error(self) -> Aborted:
        return Aborted(f"the {self.name} executor is closed; load the model again")
