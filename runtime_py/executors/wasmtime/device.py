"""A loaded model: its memory, its seats and helpers, and how a step passes through."""

from __future__ import annotations

import threading
import time
from array import array
from dataclasses import dataclass
from queue import SimpleQueue

import wasmtime

from runtime_py.errors import Aborted, DeviceLost, InvalidInput, VoleryError
from runtime_py.executors.base import ExecutorLimits, KVFormat, Step, StepResult
from runtime_py.executors.check import check_generation, check_rows
from runtime_py.executors.wasmtime.calls import Instance
from runtime_py.executors.wasmtime.generation import PARTS, GenerationParts, sampling_words
from runtime_py.executors.wasmtime.loader import CacheSizes, load, make_memory
from runtime_py.executors.wasmtime.memory import LinearMemory
from runtime_py.executors.wasmtime.modules import Variant, choose, engine, module
from runtime_py.executors.wasmtime.pool import Helpers, abandon
from runtime_py.executors.weights import WeightSource
from runtime_py.program import Program, Rows

_EMPTY: memoryview[float] = memoryview(b"").cast("f")


@dataclass(frozen=True, slots=True)
class Seat:
    """What one step needs to itself: an instance with a stack, and a workspace.

    The views are of the workspace's parts, bytes but for the header's u32. They
    stay valid because memory never grows once the model is sealed, and `Device.close`
    releases them before the memory goes.
    """

    instance: Instance
    workspace: int
    header: memoryview
    tokens: memoryview
    seqs: memoryview
    output: memoryview
    statuses: memoryview
    generation: GenerationParts | None

    def release(self) -> None:
        """Let go of the memory and free the instance."""
        for part in (self.header, self.tokens, self.seqs, self.output, self.statuses):
            part.release()
        if self.generation is not None:
            self.generation.release()
        self.instance.close()


class Device:
    """Runs steps of one program over one memory. Thread-safe."""

    def __init__(
        self, program: Program, limits: ExecutorLimits, variant: Variant, memory: LinearMemory
    ) -> None:
        self.variant = variant
        self.memory_bytes: dict[str, int] = {}
        self._program, self._memory = program, memory
        self._seats: SimpleQueue[Seat | None] = SimpleQueue()
        self._row_bytes = 4 * program.output.width
        self._output_per_token = program.output.rows is Rows.TOKENS
        self._limits = limits
        self._num_seats = 0
        self._helpers: Helpers | None = None
        self._lost: DeviceLost | None = None
        self._closing = threading.Lock()
        self._closed = False

    @classmethod
    def load(
        cls,
        program: Program,
        weights: WeightSource,
        limits: ExecutorLimits,
        variant: Variant,
        kv_format: KVFormat,
    ) -> Device:
        """Instantiate the module, load the model, start the helpers."""
        variant = choose(variant, limits.threads > 1 or limits.concurrent_steps > 1, program)
        shared = variant.endswith("-threads")
        wasm = module(variant)
        memory = make_memory(engine(shared), wasm, shared)
        device = cls(program, limits, variant, memory)
        try:
            device._load(wasm, weights, kv_format)
        except BaseException:
            device.close()
            raise
        return device

    def _load(self, wasm: wasmtime.Module, weights: WeightSource, kv_format: KVFormat) -> None:
        limits, decoder = self._limits, self._program.is_decoder
        helpers, seats = limits.threads - 1, limits.concurrent_steps
        # The module has stacks 0 .. pool: helpers take the first ones, seats the last,
        # and the very last belongs to the instance that loads.
        pool = max(limits.threads, helpers + seats - 1)
        first = Instance(wasm, self._memory)
        with first.held():
            load(
                first,
                self._memory,
                self._program,
                weights,
                max_tokens=limits.max_tokens,
                max_seqs=limits.max_seqs,
                workspaces=seats,
                threads=pool,
                cache=self._cache_sizes(kv_format) if decoder else None,
            )
            for which, name in enumerate(("weights", "workspaces", "all", "cache")):
                self.memory_bytes[name] = first.call64("v_memory_bytes", which)
            threads = self.variant.endswith("-threads")
            stacks = [first.call("v_stack_top", i) for i in range(pool + 1)] if threads else [0]
            parts = [*range(5), *(PARTS if decoder else ())]
            offsets = [
                [first.call("v_workspace", i, part) & 0xFFFFFFFF for part in parts]
                for i in range(seats)
            ]
            sizes = [first.call("v_part_bytes", part) & 0xFFFFFFFF for part in parts]

        def attach(thread: int) -> Instance:
            instance = Instance(wasm, self._memory)
            instance.set_stack(stacks[thread])
            return instance

        first.set_stack(stacks[-1])
        for i in range(seats):
            instance = first if i == 0 else attach(pool - i)
            with self._memory.view() as view:
                header, *views = (view[a : a + n] for a, n in zip(offsets[i], sizes, strict=True))
            tokens, rows, output, statuses = views[:4]
            generation = GenerationParts(*views[4:]) if decoder else None
            self._seats.put(
                Seat(instance, i, header.cast("I"), tokens, rows, output, statuses, generation)
            )
            self._num_seats += 1
        if helpers:
            self._helpers = Helpers([attach(i) for i in range(helpers)], self._lose)

    def _cache_sizes(self, kv_format: KVFormat) -> CacheSizes:
        limits, vocab_size = self._limits, self._program.vocab_size
        words = sampling_words(vocab_size, limits.max_wanted)
        return CacheSizes(limits.kv_blocks, kv_format, limits.max_wanted, words)

    def run(self, step: Step, rows: array[int], begun: threading.Lock | None = None) -> StepResult:
        """Execute ``step``, whose sequence rows lie flat in ``rows`` (u32).

        Args:
            begun: released when the step is about to be inside wasm.
        """
        seat = self._seats.get()
        if seat is None:
            self._seats.put(None)  # for the next caller that waits
            self.check_alive()
            raise Aborted("the wasmtime executor is closed; load the model again")
        helpers: list[int] = []
        instance = seat.instance
        try:
            instance.acquire()
            if step.threads > 1 and self._helpers is not None:
                helpers = self._helpers.take(step.threads - 1, seat.workspace)
            self.check_alive()  # now: a helper that died is given back after the loss is known
            return self._execute(seat, helpers, step, rows, begun)
        except DeviceLost as error:
            self._lose(error)
            if helpers:
                abandon(instance, seat.workspace)  # they wait for this thread
            raise
        finally:
            if helpers and self._helpers is not None:
                self._helpers.give(helpers)
            instance.release()
            self._seats.put(seat)

    def _execute(
        self,
        seat: Seat,
        helpers: list[int],
        step: Step,
        rows: array[int],
        begun: threading.Lock | None,
    ) -> StepResult:
        # After a step's kernels every cache is cold: each Python line here costs about a
        # microsecond, so there are few of them.
        call, tokens = seat.instance.call, step.token_ids
        num_tokens, num_seqs = len(tokens), len(step.seqs)
        seat.header[0], seat.header[1] = num_tokens, num_seqs
        seat.tokens[: 4 * num_tokens] = memoryview(tokens).cast("B")
        seat.seqs[: 16 * num_seqs] = memoryview(rows).cast("B")
        generation = seat.generation
        if generation is not None:
            generation.write(seat.header, step, rows, self._program, self._limits)
        if begun is not None:
            begun.release()
        start = time.perf_counter_ns()
        if helpers:
            for rank, helper in enumerate(helpers, 1):
                call("v_post", helper, seat.workspace, rank, len(helpers) + 1)
            code = call("v_lead", seat.workspace, len(helpers) + 1)
        else:
            code = call("v_run", seat.workspace)
        elapsed = time.perf_counter_ns() - start
        if code or self._lost is not None:
            raise self._failure(code, step)
        if generation is not None and step.sampling is not None:
            sampled = generation.read(len(step.wanted))
            return StepResult(_EMPTY, bytes(seat.statuses[:num_seqs]), elapsed, sampled)
        if generation is not None:
            count = len(step.wanted)
        else:
            count = num_tokens if self._output_per_token else num_seqs
        if not count:
            return StepResult(_EMPTY, bytes(seat.statuses[:num_seqs]), elapsed)
        output = bytes(seat.output[: count * self._row_bytes])
        shape = (count, self._row_bytes // 4)
        return StepResult(
            memoryview(output).cast("f", shape), bytes(seat.statuses[:num_seqs]), elapsed
        )

    def _failure(self, code: int, step: Step) -> VoleryError:
        self.check_alive()
        check_rows(self._program, step)  # these say what is wrong, in words
        check_generation(self._program, self._limits, step)
        return InvalidInput(f"the wasm module refused the step with code {code}")

    def check_alive(self) -> None:
        """Raises:
        DeviceLost: a step or a helper trapped.
        """
        if self._lost is not None:
            raise DeviceLost(str(self._lost))

    def close(self) -> None:
        """Wait for steps in flight, stop the helpers, free the memory. Idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
            seats = [s for s in (self._seats.get() for _ in range(self._num_seats)) if s]
            self._seats.put(None)  # wakes a caller that waits, which wakes the next
            if self._helpers is not None:
                with seats[0].instance.held():
                    self._helpers.stop(seats[0].instance)
            for seat in seats:
                seat.release()
            self._memory.close()

    def _lose(self, error: DeviceLost) -> None:
        if self._lost is None:
            self._lost = error
