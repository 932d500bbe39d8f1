"""The threads of a shared model: seats that lead steps, helpers that join them.

A step runs on the thread that asked for it, which borrows a *seat*: an instance with a
stack and a workspace of its own. A step of k threads also takes up to k - 1 *helpers*:
threads that wait inside wasm, each on its own instance. So P one-thread steps use P
seats, one P-thread step a seat and P - 1 helpers, over one copy of the weights, and no
step waits for another thread before it starts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue

from runtime_py.errors import DeviceLost
from runtime_py.executors.wasmtime.calls import Instance


class Helpers:
    """Threads 0 .. n - 1 of the module's pool, each inside its own instance."""

    def __init__(
        self, instances: Sequence[Instance], on_lost: Callable[[DeviceLost], None]
    ) -> None:
        self._idle = list(range(len(instances)))
        self._workspaces = [0] * len(instances)  # of the step that each helps last
        self._lock = threading.Lock()
        self._on_lost = on_lost
        # Daemons: an executor that nobody closed must not keep the process alive. Its
        # finalizer stops them before the interpreter goes.
        self._threads = [
            threading.Thread(
                target=self._work, args=(i, instance), name=f"volery-helper-{i}", daemon=True
            )
            for i, instance in enumerate(instances)
        ]
        for thread in self._threads:
            thread.start()

    def take(self, most: int, workspace: int) -> list[int]:
        """Reserve up to ``most`` idle helpers for a step in ``workspace``."""
        with self._lock:
            taken = self._idle[:most]
            del self._idle[:most]
        for helper in taken:
            self._workspaces[helper] = workspace
        return taken

    def give(self, taken: list[int]) -> None:
        """Return helpers whose step is over."""
        with self._lock:
            self._idle += taken

    def stop(self, instance: Instance) -> None:
        """End the threads through ``instance``, which the caller holds, and wait for them."""
        for i in range(len(self._threads)):
            instance.call("v_stop", i)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _work(self, index: int, instance: Instance) -> None:
        try:
            with instance.held():
                try:
                    while instance.call("v_worker", index) >= 0:
                        pass  # only a leader returns with a workspace; helpers never lead
                except DeviceLost as error:
                    self._on_lost(error)  # first: who is woken finds out why
                    abandon(instance, self._workspaces[index])
        finally:
            instance.close()


class Leaders:
    """Threads that run submitted steps, started with the first of them.

    A step needs no future with a lock and a condition of its own, as `concurrent.futures`
    makes them: that alone is half the price of handing one over.
    """

    def __init__(self, count: int) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # Daemons, as the helpers
        self._threads = [
            threading.Thread(
                target=_lead, args=(self._jobs,), name=f"volery-leader-{i}", daemon=True
            )
            for i in range(count)
        ]
        self._started = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run ``job``, which does not raise, on one of the threads; one caller at a time."""
        if not self._started:
            self._started = True
            for thread in self._threads:
                thread.start()
        self._jobs.put(job)

    def stop(self) -> None:
        """End the threads after the jobs that they have, and wait for them."""
        if not self._started:
            return
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():  # the last owner of the executor
                thread.join()


def _lead(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it knows the executor, which may be garbage while the next one is awaited


def abandon(instance: Instance, workspace: int) -> None:
    """Wake the other ranks of the step in ``workspace``, of which one has trapped.

    Args:
        instance: held by the calling thread; it may be the one that trapped.
    """
    with suppress(DeviceLost):  # then nothing of the module works any more
        instance.call("v_abandon", workspace)
