"""The wasmtime executor: its cache, its memory, its threads, its end."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import wasmtime

from runtime_py.errors import (
    ArtifactCorrupt,
    ArtifactMissing,
    InvalidInput,
    OutOfMemory,
)
from runtime_py.executors.base import Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.wasmtime import WasmtimeExecutor, modules
from runtime_py.executors.wasmtime.calls import Instance
from runtime_py.executors.wasmtime.loader import ABI_VERSION, allocate, load, make_memory
from runtime_py.executors.weights import MemoryWeights, RowRange, WeightSource
from runtime_py.program import OpKind, Program, TensorFormat
from tests.ops.cases import make_step, normal
from tests.ops.cases.builder import Builder
from tests.ops.cases.encoder import encoder, weights_of
from tests.wasm.models import linear, random_parts

ROOT = Path(__file__).parents[2]
BUILDS = ("simd", "relaxed", "simd-threads", "relaxed-threads")
MAX_GROWTH = 8 << 20


def small(fmt: TensorFormat = TensorFormat.I8B32, **options: object) -> WasmtimeExecutor:
    program, parts = encoder(fmt)
    options = {"max_tokens": 64, "max_seqs": 4} | options
    return WasmtimeExecutor.from_weights(program, weights_of(program, parts), **options)


STEP = make_step([9, 4], ids=list(range(13)))


# --- the module and its cache -------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "steps", "build"),
    [(1, None, "relaxed"), (2, None, "relaxed-threads"), (1, 2, "relaxed-threads")],
)
def test_auto_variant(threads: int, steps: int | None, build: str) -> None:
    model = small(threads=threads, concurrent_steps=steps)
    assert model.variant == build
    assert model.limits.concurrent_steps == (steps or threads)
    model.close()


@pytest.mark.parametrize(("bits", "build"), [(8, "relaxed"), (16, "simd")])
def test_auto_takes_plain_simd_for_16_bit_activations(bits: int, build: str) -> None:
    program = linear(TensorFormat.I4B32, 64, 64, vocab=8, bits=bits)
    weights = MemoryWeights(program, random_parts(program))
    model = WasmtimeExecutor.from_weights(program, weights, max_tokens=8, max_seqs=1)
    assert model.variant == build
    model.close()


@pytest.mark.parametrize("build", BUILDS)
def test_every_build_runs_with_one_thread(build: str) -> None:
    model = small(variant=build)
    assert model.run(STEP).statuses == b"\0\0"
    model.close()


def test_bad_options_are_refused() -> None:
    for options, words in (
        ({"variant": "fast"}, "variant is 'fast'"),
        ({"variant": "simd", "threads": 2}, "use 'simd-threads'"),
        ({"threads": 0}, "threads is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_seqs": -1}, "max_seqs is -1"),
        ({"concurrent_steps": 0}, "concurrent_steps is 0"),
    ):
        with pytest.raises(InvalidInput, match=words):
            small(**options)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return modules.cache_folder()


WAT = '(module (func (export "answer") (result i32) i32.const 42))'


def answer(module: wasmtime.Module, engine: wasmtime.Engine) -> int:
    store = wasmtime.Store(engine)
    return wasmtime.Instance(store, module, []).exports(store)["answer"](store)


def test_D3_compiled_code_is_kept_and_damage_is_repaired(empty_cache: Path) -> None:
    engine, wasm = modules.engine(False), bytes(wasmtime.wat2wasm(WAT))
    assert answer(modules.compile_cached(engine, wasm), engine) == 42
    (file,) = empty_cache.iterdir()
    whole, stamp = file.read_bytes(), file.stat().st_mtime_ns
    assert answer(modules.compile_cached(engine, wasm), engine) == 42
    assert file.stat().st_mtime_ns == stamp  # read, not written again
    flips = [
        whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        for at in range(0, len(whole), len(whole) // 16)
    ]
    flips.append(whole.replace(bytes([42, 0, 0, 0]), bytes([43, 0, 0, 0])))
    for damage in (b"", whole[:40], whole[:-1], b"x" * 5000, *flips):
        file.write_bytes(damage)
        assert answer(modules.compile_cached(engine, wasm), engine) == 42
        assert file.read_bytes() == whole
    # whole by its digest, and made for something else
    other = b"\x7fELF of another kind"
    file.write_bytes(hashlib.sha256(other).digest() + other)
    assert answer(modules.compile_cached(engine, wasm), engine) == 42
    assert [f.name for f in empty_cache.iterdir()] == [file.name]  # and no litter


def test_D3_a_cache_that_cannot_be_written_is_no_error(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = empty_cache.parent.parent / "file"
    blocked.write_text("not a folder")
    monkeypatch.setattr(modules, "cache_folder", lambda: blocked / "below")
    engine = modules.engine(False)
    assert answer(modules.compile_cached(engine, bytes(wasmtime.wat2wasm(WAT))), engine) == 42


def test_a_build_that_is_missing_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modules, "module", modules.module.__wrapped__)
    monkeypatch.setattr(modules.resources, "files", lambda _: Path("nowhere"))
    with pytest.raises(ArtifactMissing, match="toolchain build"):
        modules.module("relaxed")


# --- loading ------------------------------------------------------------------------


class Broken:
    """Real weights with one fault."""

    def __init__(self, program: Program, parts: dict, fault: str) -> None:
        self.inner, self.fault = weights_of(program, parts), fault

    def iter_rows(self, tensor: int, max_bytes: int) -> Iterator[RowRange]:
        for part in self.inner.iter_rows(tensor, max_bytes):
            if tensor == 5 and self.fault == "missing":
                return
            yield part
            if tensor == 5 and self.fault == "twice":
                yield part
            if tensor == 5 and self.fault == "past the end":
                yield part._replace(row0=part.rows)


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("missing", ArtifactMissing),
        ("twice", ArtifactCorrupt),
        ("past the end", ArtifactCorrupt),
    ],
)
def test_faulty_weights_are_refused(fault: str, error: type[Exception]) -> None:
    program, parts = encoder(TensorFormat.I8B32)
    with pytest.raises(error, match=program.tensors[5].name) as caught:
        WasmtimeExecutor.from_weights(program, Broken(program, parts, fault))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("threads", [1, 2])
def test_M3_memory_that_cannot_be_had_is_a_typed_error(threads: int) -> None:
    program, parts = encoder(TensorFormat.I8B32)
    with pytest.raises(OutOfMemory, match="max_tokens") as caught:
        WasmtimeExecutor.from_weights(
            program, weights_of(program, parts), max_tokens=1 << 22, threads=threads
        )
    assert caught.value.bytes_requested > 1 << 30  # the first buffer that does not fit


@pytest.mark.parametrize("build", ["relaxed", "relaxed-threads"])
def test_M3_a_model_above_2_gib_computes_the_same(build: str) -> None:
    """Addresses past 2^31 are not negative numbers."""
    program, parts = encoder(TensorFormat.I8B32)
    shared = build.endswith("threads")
    wasm, engine = modules.module(build), modules.engine(shared)
    outputs = []
    for ballast in (0, (1 << 31) + 12345):
        memory = make_memory(engine, wasm, shared)
        instance = Instance(wasm, memory)
        with instance.held():
            if ballast:
                allocate(instance, ballast)
            sizes = {"max_tokens": 16, "max_seqs": 2, "workspaces": 1, "threads": 1}
            load(instance, memory, program, weights_of(program, parts), **sizes)
            header, tokens, seqs, output, _ = (
                instance.call("v_workspace", 0, part) & 0xFFFFFFFF for part in range(5)
            )
            assert (output > 1 << 31) == bool(ballast)
            for at, values in (
                (header, [13, 2]),
                (tokens, STEP.token_ids),
                (seqs, [9 * 0, 9, 0, 0, 9, 4, 0, 0]),
            ):
                raw = np.array(values, np.uint32).tobytes()
                memory.view()[at : at + len(raw)] = raw
            assert instance.call("v_run", 0) == 0
            size = 4 * 2 * program.output.width
            outputs.append(bytes(memory.view()[output : output + size]))
        instance.close()
        memory.close()
    model = small()
    assert outputs == [bytes(model.run(STEP).output)] * 2
    model.close()


class Pieces:
    """A source that gives ranges of its own size, whatever it is asked for."""

    def __init__(self, inner: WeightSource, max_bytes: int) -> None:
        self.inner, self.max_bytes = inner, max_bytes

    def iter_rows(self, tensor: int, max_bytes: int) -> Iterator[RowRange]:
        return self.inner.iter_rows(tensor, self.max_bytes)


@pytest.mark.parametrize("fmt", list(TensorFormat), ids=lambda f: f.name)
def test_weights_arrive_in_ranges_of_any_size(fmt: TensorFormat) -> None:
    """Eight rows at a time, in 1 MiB, and a whole tensor larger than the staging buffer."""
    b = Builder(3)
    x = b.input(normal(1, 3, 1200))
    if fmt is TensorFormat.I8R:
        table = b.tensor(normal(2, 3000, 1200), fmt)
        b.vocab_size, b.ops = 3000, []
        out = b.add(OpKind.EMBED, x, table=table, scale=1.0)
    else:
        weight = b.tensor(normal(2, 3003, 1200) / 35, fmt)
        out = b.add(OpKind.LINEAR, b.tokens(3003), x=x, weight=weight)
    program = b.program(out)
    outputs = set()
    for size in (1, 1 << 20, 1 << 30):
        model = WasmtimeExecutor.from_weights(
            program, Pieces(weights_of(program, b.parts), size), max_tokens=3, max_seqs=1
        )
        outputs.add(bytes(model.run(make_step([3])).output))
        model.close()
    assert len(outputs) == 1
    wanted = ReferenceExecutor.from_weights(program, weights_of(program, b.parts))
    got = np.frombuffer(outputs.pop(), np.float32).reshape(3, -1)
    np.testing.assert_allclose(got, np.asarray(wanted.run(make_step([3])).output), atol=1e-4)


def test_loading_needs_one_copy_of_the_weights() -> None:
    """Beside weights and arena the memory holds a staging buffer and little else."""
    b = Builder(1000)
    x = b.input(normal(1, 1000, 512))
    for i in range(8):
        w = b.tensor(normal(2 + i, 512, 512) / 23, TensorFormat.I8B32)
        x = b.add(OpKind.LINEAR, b.tokens(512), x=x, weight=w)
    program = b.program(x)
    stored = sum(a.nbytes for a in b.parts.values())
    model = WasmtimeExecutor.from_weights(
        program, weights_of(program, b.parts), max_tokens=32, max_seqs=1
    )
    sizes = model.memory_bytes
    model.close()
    assert stored <= sizes["weights"] <= 1.02 * stored
    assert sizes["all"] - sizes["workspaces"] <= 1.2 * stored + (1 << 20)


# --- memory and views ---------------------------------------------------------------


def test_D1_M18_memory_is_read_where_it_is_now() -> None:
    """Growth between two accesses moves nothing that Python still holds."""
    wasm = modules.module("relaxed")
    memory = make_memory(modules.engine(False), wasm, False)
    instance = Instance(wasm, memory)
    with instance.held():
        at = allocate(instance, 64)
        memory.view()[at : at + 4] = b"abcd"
        before = memory.size()
        for _ in range(5):
            allocate(instance, 3 << 20)
            view = memory.view()
            assert len(view) == memory.size() > before
            assert bytes(view[at : at + 4]) == b"abcd"
            before = memory.size()
    instance.close()


def test_D1_results_outlive_steps_and_the_model() -> None:
    model = small()
    result = model.run(STEP)
    kept = bytes(result.output)
    for seed in range(5):
        model.run(make_step([13], ids=np.random.default_rng(seed).integers(0, 97, 13).tolist()))
    model.close()
    gc.collect()
    assert bytes(result.output) == kept


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("threads", [1, 2])
def test_M1_fifty_loads_leave_no_memory_and_no_threads(threads: int) -> None:
    def cycle() -> None:
        # an arena of about 8 MB, touched by a full step
        model = small(threads=threads, max_tokens=2048)
        model.run(make_step([300] * 4, ids=[1] * 1200, threads=threads))
        model.close()

    def growth() -> int:
        start = resident()
        for _ in range(50):
            cycle()
        gc.collect()
        return resident() - start

    before = set(threading.enumerate())
    for _ in range(5):
        cycle()
    gc.collect()
    # When the allocator gives pages back is chance; a leak would be there every time.
    found = [growth()]
    while found[-1] >= MAX_GROWTH and len(found) < 3:
        found.append(growth())
    assert found[-1] < MAX_GROWTH, found
    assert set(threading.enumerate()) <= before


# --- threads ------------------------------------------------------------------------


def test_D2_a_call_from_a_thread_that_does_not_hold_the_instance_raises() -> None:
    wasm = modules.module("relaxed")
    instance = Instance(wasm, make_memory(modules.engine(False), wasm, False))
    with pytest.raises(RuntimeError, match="does not hold"):
        instance.call("v_abi_version")
    caught: list[BaseException] = []

    def intrude() -> None:
        for attempt in (lambda: instance.call("v_abi_version"), instance.held().__enter__):
            try:
                attempt()
            except RuntimeError as error:
                caught.append(error)

    with instance.held():
        assert instance.call("v_abi_version") == ABI_VERSION
        other = threading.Thread(target=intrude)
        other.start()
        other.join()
    assert len(caught) == 2
    instance.close()


def test_steps_side_by_side_and_steps_of_all_threads_share_a_pool() -> None:
    model = small(threads=3, max_tokens=512)
    wanted = {
        n: bytes(model.run(make_step([n, 5], ids=[3] * (n + 5))).output) for n in (1, 40, 300)
    }
    failures: list[object] = []

    def work(threads: int) -> None:
        for n in (1, 40, 300) * 4:
            step = make_step([n, 5], ids=[3] * (n + 5), threads=threads)
            if bytes(model.run(step).output) != wanted[n]:
                failures.append((threads, n))

    crowd = [threading.Thread(target=work, args=(1 + i % 3,)) for i in range(6)]
    for t in crowd:
        t.start()
    for t in crowd:
        t.join()
    model.close()
    assert not failures


def test_an_executor_that_nobody_closed_does_not_keep_the_process() -> None:
    script = """
        from tests.executors.test_wasmtime import small, STEP
        model = small(threads=2)
        model.run(STEP)
        model.submit(STEP, lambda result: print(result.statuses))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, r"b'\x00\x00'", "")


def test_a_forgotten_executor_is_collected() -> None:
    before = set(threading.enumerate())
    model = small(threads=2)
    model.run(STEP)
    started = set(threading.enumerate()) - before
    assert started
    del model
    gc.collect()
    for thread in started:
        thread.join(60)
    assert not any(thread.is_alive() for thread in started)


# --- cost ---------------------------------------------------------------------------


def test_a_step_costs_little_beyond_its_kernels() -> None:
    """Loosely: the bar is 50 microseconds on a quiet machine."""
    model = small(max_tokens=512, max_seqs=32)
    step: Step = make_step([8] * 16, ids=[1] * 128)
    best = 1 << 60
    for _ in range(300):
        start = time.perf_counter_ns()
        result = model.run(step)
        best = min(best, time.perf_counter_ns() - start - result.device_ns)
    model.close()
    assert best < 250_000
