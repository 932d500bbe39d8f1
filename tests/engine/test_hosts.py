"""Hosts without threads, numpy or a responsive caller."""

from __future__ import annotations

import ast
import asyncio
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import runtime_py
from runtime_py import results
from runtime_py._compat import Worker, default_threads
from runtime_py.batching import CostProfile
from runtime_py.engine import cost_profile
from runtime_py.tokenization import HFTokenizer
from tests.engine.tiny import WIDTH, ids_of, make, program, run, tokenizer_json, truth

ROOT = Path(runtime_py.__file__).parent
THREADED = {"threading", "concurrent.futures", "_thread", "multiprocessing"}
NATIVE_ONLY = {"sync.py", "executors/serial.py"}

PYODIDE = """
import sys, threading
sys.platform = "emscripten"

def refuse(*args, **kwargs):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
from array import array
import asyncio
from runtime_py.engine import Engine
from runtime_py.executors.base import ExecutorLimits, StepResult
from runtime_py.info import ModelInfo
from runtime_py.model import Model
from runtime_py.tokenization import Encoded

class Sums:  # a backend that answers at once, as one that awaits a worker would later
    name = "sums"
    limits = ExecutorLimits(64, 8, 1, 1)
    def run(self, step):
        rows = [(float(sum(step.token_ids[r.first_token:r.first_token + r.num_tokens])), 1.0)
                for r in step.seqs]
        return StepResult(memoryview(array("f", [x for r in rows for x in r])).cast("B").cast(
            "f", (len(rows), 2)), bytes(len(rows)), 1000)
    def submit(self, step, done):
        done(self.run(step))
    def close(self):
        pass

class Letters:
    max_tokens = 60
    def encode(self, texts):
        return [Encoded([ord(c) for c in t[:60]] or [0], max(len(t), 1)) for t in texts]
    def prompt_length(self, prompt):
        return len(prompt)

async def main():
    async with Model(Engine(Sums(), 2), Letters(), ModelInfo("sums", 2, False, 60)) as model:
        rows = await model.embed(["a", "bc", "x" * 9000])
        assert [r.tolist() for r in rows] == [[97.0, 1.0], [197.0, 1.0], [7200.0, 1.0]], rows
        assert isinstance(rows[0], memoryview) and rows[0].format == "f"
        one = await model.embed("a", normalize=True)
        assert abs(one[0] - 1) < 1e-3
        cut = await model.embed(["a"], dimensions=1)
        assert cut[0].tolist() == [97.0]
        assert await model.embed([]) == []
        assert len([r async for r in model.embed_stream(["a"] * 50)]) == 50
        try:
            await model.embed("a", dtype="float16")
        except ValueError as e:
            assert "numpy" in str(e)
        else:
            raise AssertionError

asyncio.run(main())
assert "numpy" not in sys.modules and "tokenizers" not in sys.modules
print("fine")
"""


def test_D6_runs_in_pyodide_without_threads_and_numpy() -> None:
    code = "import sys; sys.modules['numpy'] = None\n" + PYODIDE.replace(
        'assert "numpy" not in sys.modules and ', "assert "
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=ROOT.parent
    )
    assert done.stdout == "fine\n", done.stderr


def test_D6_nothing_imports_threads_at_import_time() -> None:
    for path in ROOT.glob("**/*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name in NATIVE_ONLY or name.startswith(("executors/wasmtime", "executors/onnx")):
            continue
        for node in ast.parse(path.read_text()).body:  # module level only
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not THREADED.intersection(names), f"{name} imports {names}"


def test_the_public_package_reaches_no_thread_module_of_ours() -> None:
    code = (
        "import sys, runtime_py\n"
        "ours = [m for m in sys.modules if m.startswith('runtime_py')]\n"
        "assert 'runtime_py.sync' not in ours\n"
        "assert not [m for m in ours if m.startswith('runtime_py.executors.') "
        "and m.split('.')[2] not in ('base', 'weights', 'check')], ours\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT.parent)


def test_E9_a_megabyte_of_text_does_not_block_the_loop() -> None:
    """1 MB without spaces and 100 kB with them, while the loop keeps answering.

    A turn of the loop is measured in the time of its own thread: how long other threads and
    programs keep it from running is not its doing.
    """

    async def test() -> None:
        async with make(tokenizer=HFTokenizer(tokenizer_json(words=True), 32)) as model:
            longest = 0.0
            running = True

            async def watch() -> None:
                nonlocal longest
                while running:
                    before = time.thread_time()
                    await asyncio.sleep(0)
                    longest = max(longest, time.thread_time() - before)

            watching = asyncio.create_task(watch())
            await asyncio.sleep(0)  # it has begun
            blob, words = "a" * 1_000_000, "ab " * 33_333
            vectors = await model.embed([blob, "b", words])
            running = False
            await watching
            np.testing.assert_allclose(vectors[1], truth(ids_of("b")), atol=1e-6)
            np.testing.assert_allclose(vectors[0], truth([2, 1, 3]), atol=1e-6)  # one [UNK]
            assert longest < 0.02

    run(test)


def test_worker_runs_off_the_loop_and_passes_errors_on() -> None:
    async def test() -> None:
        worker = Worker()
        assert await worker.run(divmod, 7, 3) == (2, 1)
        with pytest.raises(ZeroDivisionError):
            await worker.run(divmod, 1, 0)
        worker.close(wait=True)
        worker.close()

    run(test)


def test_default_threads_are_sensible() -> None:
    assert 1 <= default_threads() <= 8


def test_numpy_and_plain_vectors_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.random.default_rng(2).standard_normal((5, WIDTH)).astype(np.float32)
    for form in (
        results.VectorFormat(WIDTH, WIDTH, False, "float32"),
        results.VectorFormat(WIDTH, 7, False, "float32"),
        results.VectorFormat(WIDTH, 7, True, "float32"),
    ):
        expected = form.rows(bytearray(rows.tobytes()))
        with monkeypatch.context() as patch:
            patch.setattr(results, "numpy_or_none", lambda: None)
            plain = form.rows(bytearray(rows.tobytes()))
        np.testing.assert_allclose([list(r) for r in plain], expected, atol=1e-7)


def test_zero_vectors_stay_zero_when_normalised() -> None:
    form = results.VectorFormat(4, 4, True, "float32")
    assert form.rows(bytearray(16)).tolist() == [[0.0] * 4]


def test_cost_profile_prefers_what_was_measured() -> None:
    estimate = cost_profile(program())
    assert estimate.token_ns == 100.0  # a tiny model: the floor
    assert estimate.step_ns == CostProfile().step_ns
    measured = cost_profile(
        program(),
        {"constant": 1.0, "num_seqs": 2.0, "num_tokens": 3.0, "sum_len_sq": 4.0},
    )
    assert measured == CostProfile(1.0, CostProfile().thread_ns, 2.0, 3.0, 4.0)
