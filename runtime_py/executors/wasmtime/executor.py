"""`WasmtimeExecutor`: steps on the wasm module, natively."""

from __future__ import annotations

import weakref
from array import array
from itertools import chain
from threading import Lock

from runtime_py.errors import Aborted, InvalidInput
from runtime_py.executors.base import ExecutorLimits, KVFormat, SeqRows, Step, StepResult
from runtime_py.executors.check import check_counts, check_generation, check_rows
from runtime_py.executors.completion import Done, complete
from runtime_py.executors.wasmtime.device import Device
from runtime_py.executors.wasmtime.modules import Variant
from runtime_py.executors.wasmtime.pool import Leaders
from runtime_py.executors.weights import WeightSource
from runtime_py.program import Program, validate

# What the caller of `submit` waits for the other thread to be inside wasm. Python runs one
# thread at a time: if the caller, an event loop with tokens to deliver, went on at once, the
# step would begin when it has nothing left to do.
_HANDOVER_S = 0.001


class WasmtimeExecutor:
    """A model in a wasm memory; its steps run on the calling thread and its helpers.

    `run` and `submit` may be called from any thread. A `run` that finds every workspace
    taken waits for one.
    """

    name = "wasmtime"

    def __init__(self, program: Program, device: Device, limits: ExecutorLimits) -> None:
        self._program, self._device, self._limits = program, device, limits
        self._lock = Lock()  # guards the two fields below
        self._in_flight = 0
        self._closed = False
        self._leaders = Leaders(limits.concurrent_steps)
        # Runs when the executor is garbage or the interpreter ends, whichever is first.
        self._finalizer = weakref.finalize(self, _end, self._leaders, device)

    @classmethod
    def from_weights(
        cls,
        program: Program,
        weights: WeightSource,
        *,
        threads: int = 1,
        variant: Variant = "auto",
        max_tokens: int = 2048,
        max_seqs: int = 128,
        concurrent_steps: int | None = None,
        kv_blocks: int = 0,
        kv_format: KVFormat = "f32",
        max_wanted: int | None = None,
    ) -> WasmtimeExecutor:
        """Load a model.

        Args:
            weights: streamed once, in ranges of about 1 MiB.
            threads: most threads of a step.
            variant: the build of the module.
            max_tokens, max_seqs: most tokens and sequences of a step; they size the arena.
            concurrent_steps: workspaces, thus steps side by side; by default ``threads``,
                for a decoder 1 and never more.
            kv_blocks: of a decoder: blocks of its key-value cache, `KV_BLOCK` tokens each.
            kv_format: of a decoder: how the cache stores keys and values.
            max_wanted: of a decoder: most wanted rows of a step; by default ``max_seqs``.

        Raises:
            ArtifactError: the program, its weights or the wasm module are not usable.
            InvalidInput: an argument is out of range.
            OutOfMemory: weights and arena do not fit a wasm memory.
        """
        validate(program)
        decoder = program.is_decoder
        steps = (1 if decoder else threads) if concurrent_steps is None else concurrent_steps
        wanted = (max_seqs if decoder else 0) if max_wanted is None else max_wanted
        for what, value, least, most in (
            ("threads", threads, 1, 256),
            ("max_tokens", max_tokens, 1, 1 << 24),
            ("max_seqs", max_seqs, 1, 1 << 24),
            ("concurrent_steps", steps, 1, 1 if decoder else 256),
            ("kv_blocks", kv_blocks, int(decoder), decoder << 24),
            ("max_wanted", wanted, int(decoder), decoder << 24),
        ):
            if not least <= value <= most:
                kind = f" for {'a decoder' if decoder else 'an encoder'}" if most < 2 else ""
                raise InvalidInput(f"{what} is {value}, expected {_span(least, most)}{kind}")
        if kv_format not in ("f32", "f16"):
            raise InvalidInput(f"kv_format is {kv_format!r}, expected 'f32' or 'f16'")
        limits = ExecutorLimits(
            max_tokens, max_seqs, threads, steps, kv_blocks, min(wanted, max_tokens)
        )
        return cls(program, Device.load(program, weights, limits, variant, kv_format), limits)

    @property
    def limits(self) -> ExecutorLimits:
        return self._limits

    @property
    def variant(self) -> Variant:
        """The build that is loaded."""
        return self._device.variant

    @property
    def memory_bytes(self) -> dict[str, int]:
        """Bytes of wasm memory: ``weights``, ``workspaces``, and ``all`` of it."""
        return dict(self._device.memory_bytes)

    def run(self, step: Step) -> StepResult:
        """Execute ``step`` on the calling thread and up to ``step.threads - 1`` helpers.

        Raises:
            InvalidInput: the step is outside the limits or malformed.
            Aborted: the executor is closed.
            DeviceLost: the module trapped, now or before.
        """
        return self._device.run(step, self._checked(step))

    def submit(self, step: Step, done: Done) -> None:
        """Start ``step``; ``done`` gets its result or its error, once, on another thread.

        Raises:
            InvalidInput: the step is outside the limits, or ``limits.concurrent_steps``
                submitted steps are in flight; of one that is malformed ``done`` is told.
            Aborted: the executor is closed.
            DeviceLost: the module trapped before.
        """
        rows = self._checked(step)
        self._device.check_alive()
        with self._lock:
            if self._closed:
                raise Aborted("the wasmtime executor is closed; load the model again")
            if self._in_flight >= self._limits.concurrent_steps:
                raise InvalidInput(
                    f"{self._in_flight} steps are in flight, the executor takes "
                    f"{self._limits.concurrent_steps}; wait for one to finish"
                )
            self._in_flight += 1
            begun = Lock()
            begun.acquire()
            self._leaders.submit(lambda: self._answer(step, rows, done, begun))
        if self._limits.concurrent_steps == 1:
            begun.acquire(timeout=_HANDOVER_S)

    def close(self) -> None:
        """Wait for the steps in flight, stop the threads, free the memory. Idempotent."""
        with self._lock:
            self._closed = True
        self._leaders.stop()
        self._finalizer()

    def _checked(self, step: Step) -> array[int]:
        """The step's sequence rows, flat, after the checks that the module cannot make.

        Ids, rows and positions it checks itself, faster than here.
        """
        check_counts(self._limits, step)
        if isinstance(step.seqs, SeqRows):
            rows = step.seqs.words
        else:
            try:
                rows = array("I", chain.from_iterable(step.seqs))
            except (OverflowError, TypeError, ValueError):
                check_rows(self._program, step)  # says which row is wrong
                raise
        if not self._limits.kv_blocks and (
            step.block_tables or step.copies or step.wanted or step.sampling is not None
        ):
            check_generation(self._program, self._limits, step)  # an encoder takes none of it
        return rows

    def _answer(self, step: Step, rows: array[int], done: Done, begun: Lock) -> None:
        complete(done, lambda: self._device.run(step, rows, begun), self._step_over)

    def _step_over(self) -> None:
        with self._lock:
            self._in_flight -= 1


def _end(leaders: Leaders, device: Device) -> None:
    leaders.stop()
    device.close()


def _span(least: int, most: int) -> str:
    return f"{least} to {most}" if least < most else str(least)
