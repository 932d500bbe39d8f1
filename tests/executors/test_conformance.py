"""What every executor owes its callers, whatever computes behind it."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from runtime_py.errors import Aborted, InvalidInput, InvalidType
from runtime_py.executors.base import ModelExecutor, SeqRow, Step, StepResult
from tests.executors.backends import EXECUTORS, MAX_SEQS, MAX_TOKENS
from tests.ops.cases import make_step
from tests.ops.cases.encoder import POSITIONS, VOCAB, WIDTH

WAIT_S = 60


@pytest.fixture(scope="module", params=EXECUTORS)
def executor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelExecutor]:
    made = EXECUTORS[request.param](tmp_path_factory.mktemp(request.param))
    yield made
    made.close()


@pytest.fixture(params=EXECUTORS)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModelExecutor]:
    made = EXECUTORS[request.param](tmp_path)
    yield made
    made.close()


def step(*lengths: int, seed: int = 0, **fields: object) -> Step:
    ids = np.random.default_rng(seed).integers(0, VOCAB, sum(lengths)).tolist()
    return make_step(lengths, ids, **fields)


class Done:
    """A completion callback that can be waited for; a second call is an error."""

    def __init__(self) -> None:
        self.results: list[StepResult | BaseException] = []
        self.event = threading.Event()

    def __call__(self, result: StepResult | BaseException) -> None:
        self.results.append(result)
        self.event.set()

    def get(self) -> StepResult:
        assert self.event.wait(WAIT_S)
        (result,) = self.results
        if isinstance(result, BaseException):
            raise result
        return result


def test_it_is_a_model_executor(executor: ModelExecutor) -> None:
    assert isinstance(executor, ModelExecutor)
    assert executor.name in {"reference", "onnxruntime", "wasmtime"}
    assert executor.limits.max_tokens == MAX_TOKENS
    assert executor.limits.max_seqs == MAX_SEQS
    assert executor.limits.concurrent_steps >= 1


def test_result(executor: ModelExecutor) -> None:
    result = executor.run(step(3, 1, 20))
    output = result.output
    assert (output.shape, output.format, output.c_contiguous) == ((3, WIDTH), "f", True)
    assert result.statuses == b"\0\0\0"
    assert result.device_ns > 0
    np.testing.assert_allclose(np.linalg.norm(np.asarray(output), axis=1), 1, atol=1e-5)


def test_a_later_step_does_not_change_a_result(executor: ModelExecutor) -> None:
    first = executor.run(step(5, 6))
    kept = bytes(first.output)
    executor.run(step(11, 12, seed=1))
    assert bytes(first.output) == kept


def test_full_limits(executor: ModelExecutor) -> None:
    lengths = [POSITIONS, 1, 1, MAX_TOKENS - POSITIONS - 7, 1, 1, 1, 2]
    assert sum(lengths) == MAX_TOKENS
    assert len(lengths) == MAX_SEQS
    assert executor.run(step(*lengths)).statuses == bytes(MAX_SEQS)


def ids(*values: int) -> array[int]:
    return array("i", values)


BAD_STEPS: dict[str, tuple[Callable[[], Step], str]] = {
    "no-tokens": (lambda: Step(ids(), []), "0 tokens"),
    "no-sequences": (lambda: Step(ids(1), []), "0 sequences"),
    "too-many-tokens": (lambda: step(300, 201), "501 tokens"),
    "too-many-sequences": (lambda: step(*[1] * 9), "9 sequences"),
    "no-threads": (lambda: Step(ids(1), [SeqRow(0, 1)], threads=0), "0 threads"),
    "too-many-threads": (lambda: Step(ids(1), [SeqRow(0, 1)], threads=99), "99 threads"),
    "id-past-vocabulary": (lambda: Step(ids(0, VOCAB), [SeqRow(0, 2)]), f"id {VOCAB}"),
    "negative-id": (lambda: Step(ids(0, -1, 1), [SeqRow(0, 3)]), "id -1"),
    "empty-sequence": (lambda: Step(ids(1), [SeqRow(0, 0), SeqRow(0, 1)]), "0 tokens from"),
    "gap": (lambda: Step(ids(1, 2, 3), [SeqRow(0, 1), SeqRow(2, 1)]), "from 2 on"),
    "overlap": (lambda: Step(ids(1, 2), [SeqRow(0, 2), SeqRow(1, 1)]), "from 1 on"),
    "rest": (lambda: Step(ids(1, 2), [SeqRow(0, 1)]), "hold 1 tokens"),
    "past-the-end": (lambda: Step(ids(1, 2), [SeqRow(0, 3)]), "hold 3 tokens"),
    "negative-length": (lambda: Step(ids(1), [SeqRow(0, -1), SeqRow(-1, 2)]), "-1 tokens"),
    "huge-length": (lambda: Step(ids(1), [SeqRow(0, 2**32 + 1)]), "tokens|positions"),
    "past-positions": (lambda: step(POSITIONS + 1), "positions 0 to 320"),
    "context-past-positions": (lambda: step(2, contexts=[POSITIONS - 1]), "positions 319"),
    "negative-context": (lambda: step(2, contexts=[-1]), "positions -1"),
    "skips-everything": (lambda: step(2, skips=[2]), "skips 2"),
    "negative-skip": (lambda: step(2, skips=[-1]), "skips -1"),
}


@pytest.mark.parametrize("bad", BAD_STEPS)
def test_a_bad_step_is_refused_in_one_line(executor: ModelExecutor, bad: str) -> None:
    make, words = BAD_STEPS[bad]
    with pytest.raises(InvalidInput, match=words) as caught:
        executor.run(make())
    assert "\n" not in str(caught.value)
    done = Done()
    try:
        executor.submit(make(), done)
    except InvalidInput as error:  # it is refused here, or the one who waits is told
        done(error)
    with pytest.raises(InvalidInput, match=words):
        done.get()
    assert executor.run(step(4)).statuses == b"\0"  # and nothing is broken by it


@pytest.mark.parametrize("tokens", [[1, 2], array("q", [1]), (1,), b"ab"])
def test_token_ids_of_another_type(executor: ModelExecutor, tokens: object) -> None:
    with pytest.raises(InvalidType, match="expected array"):
        executor.run(Step(tokens, [SeqRow(0, 1)]))  # type: ignore[arg-type]


def test_submit_gives_what_run_gives(executor: ModelExecutor) -> None:
    done = Done()
    executor.submit(step(9, 2), done)
    assert bytes(done.get().output) == bytes(executor.run(step(9, 2)).output)


def test_submit_and_run_mixed_from_many_threads(executor: ModelExecutor) -> None:
    """D2: eight threads on one executor, every answer the right one."""
    steps = [step(1 + i, 3, seed=i) for i in range(8)]
    wanted = [bytes(executor.run(s).output) for s in steps]

    def one(i: int) -> bytes:
        if i % 3:
            return bytes(executor.run(steps[i % 8]).output)
        done = Done()
        while True:
            try:
                executor.submit(steps[i % 8], done)
            except InvalidInput as error:
                if "in flight" not in str(error):
                    raise
                return bytes(executor.run(steps[i % 8]).output)
            return bytes(done.get().output)

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(one, range(64)))
    assert got == [wanted[i % 8] for i in range(64)]


def test_one_submit_too_many_is_refused(fresh: ModelExecutor) -> None:
    release, entered = threading.Event(), threading.Semaphore(0)
    finished: list[object] = []

    def hold(result: StepResult | BaseException) -> None:
        entered.release()
        release.wait(WAIT_S)
        finished.append(result)

    # A step is over when its callback is called: occupy the executor's threads with
    # callbacks that wait, then fill it with steps that cannot start.
    most = fresh.limits.concurrent_steps
    for _ in range(most):
        fresh.submit(step(2), hold)
    for _ in range(most):
        assert entered.acquire(timeout=WAIT_S)
    queued = [Done() for _ in range(most)]
    for done in queued:
        fresh.submit(step(2), done)
    with pytest.raises(InvalidInput, match="in flight"):
        fresh.submit(step(2), Done())
    release.set()
    assert [done.get().statuses for done in queued] == [b"\0"] * most
    fresh.close()
    assert len(finished) == most


def test_a_callback_that_raises_is_logged_and_harms_nobody(
    fresh: ModelExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(result: StepResult | BaseException) -> None:
        raise LookupError("the caller's own mistake")

    for _ in range(3):
        fresh.submit(step(2), bad)
        done = Done()
        while True:
            try:
                fresh.submit(step(3), done)
                break
            except InvalidInput:  # the first step is still in flight
                fresh.run(step(1))
        assert done.get().statuses == b"\0"
    fresh.close()
    assert len(caplog.records) == 3
    assert all(
        "the caller's own mistake" in str(r.exc_info[1]) for r in caplog.records if r.exc_info
    )


def test_close_is_idempotent_and_final(fresh: ModelExecutor) -> None:
    fresh.run(step(2))
    fresh.close()
    fresh.close()
    with pytest.raises(Aborted, match="closed"):
        fresh.run(step(2))
    with pytest.raises(Aborted, match="closed"):
        fresh.submit(step(2), Done())


def test_close_waits_for_steps_in_flight(fresh: ModelExecutor) -> None:
    dones = [Done() for _ in range(fresh.limits.concurrent_steps)]
    for done in dones:
        fresh.submit(step(200, 100), done)
    fresh.close()
    for done in dones:
        assert len(done.results) == 1
        assert done.get().statuses == b"\0\0"


@pytest.mark.parametrize("name", EXECUTORS)
def test_closing_while_other_threads_run(name: str, tmp_path: Path) -> None:
    """Every caller gets a result or `Aborted`; nobody hangs, no thread stays."""
    started = threading.Barrier(5)
    others = set(threading.enumerate())  # the module's shared executors'
    fresh = EXECUTORS[name](tmp_path)

    def work(i: int) -> str:
        started.wait(WAIT_S)
        for _ in range(200):
            try:
                fresh.run(step(3, seed=i))
            except Aborted:
                return "aborted"
        return "done"

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(work, i) for i in range(4)]
        started.wait(WAIT_S)
        fresh.close()
        assert {f.result(WAIT_S) for f in futures} <= {"aborted", "done"}
    mine = [t for t in set(threading.enumerate()) - others if t.name.startswith("volery")]
    assert not mine


@pytest.mark.parametrize("lengths", [(1,), (5, 1, 33)])
def test_wasmtime_equals_the_reference(lengths: tuple[int, ...], tmp_path: Path) -> None:
    made = {n: EXECUTORS[n](tmp_path) for n in ("reference", "wasmtime", "wasmtime-threads")}
    outputs = {n: np.asarray(e.run(step(*lengths)).output) for n, e in made.items()}
    for e in made.values():
        e.close()
    np.testing.assert_allclose(outputs["wasmtime"], outputs["reference"], atol=2e-3)
    np.testing.assert_array_equal(outputs["wasmtime"], outputs["wasmtime-threads"])
