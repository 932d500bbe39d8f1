"""The wasmtime executor with a decoder: its options, bad steps, memory, threads."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from runtime_py.errors import InvalidInput, OutOfMemory
from runtime_py.executors.base import SamplingRow, SeqRow, SeqRows, Step, StepResult
from runtime_py.executors.wasmtime import WasmtimeExecutor
from runtime_py.executors.wasmtime import executor as wasmtime_executor
from runtime_py.executors.wasmtime.generation import GenerationParts
from runtime_py.program import TensorFormat
from tests.executors.test_check_generation import BAD, LIMITS, PARTS, PROGRAM, good
from tests.ops.cases.decoder import VOCAB
from tests.ops.cases.encoder import encoder, weights_of
from tests.ops.cases.sampling import mask_of

WAIT_S = 60


def made(**options: object) -> WasmtimeExecutor:
    options = {
        "max_tokens": LIMITS.max_tokens,
        "max_seqs": LIMITS.max_seqs,
        "kv_blocks": LIMITS.kv_blocks,
        "max_wanted": LIMITS.max_wanted,
    } | options
    return WasmtimeExecutor.from_weights(PROGRAM, weights_of(PROGRAM, PARTS), **options)


@pytest.fixture(scope="module")
def model() -> Iterator[WasmtimeExecutor]:
    executor = made(threads=2)
    # the contexts of `good()`, written once
    executor.run(
        Step(
            array("i", [7] * 62),
            [SeqRow(0, 30), SeqRow(30, 32)],
            block_tables=[array("i", [3]), array("i", [5])],
        )
    )
    yield executor
    executor.close()


def test_limits(model: WasmtimeExecutor) -> None:
    assert model.limits == replace(LIMITS, threads=2)
    default = made(max_wanted=None)
    assert (default.limits.max_wanted, default.limits.concurrent_steps) == (LIMITS.max_seqs, 1)
    default.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv_blocks": 0}, "kv_blocks is 0, expected 1 to"),
        ({"max_wanted": 0}, "max_wanted is 0, expected 1 to"),
        ({"concurrent_steps": 2}, "concurrent_steps is 2, expected 1 for a decoder"),
        ({"kv_format": "i8"}, "kv_format is 'i8', expected 'f32' or 'f16'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        made(**options)


def test_an_encoder_takes_no_cache() -> None:
    program, parts = encoder(TensorFormat.F32)
    weights = weights_of(program, parts)
    with pytest.raises(InvalidInput, match="kv_blocks is 8, expected 0 for an encoder"):
        WasmtimeExecutor.from_weights(program, weights, kv_blocks=8)
    executor = WasmtimeExecutor.from_weights(program, weights, max_tokens=8, max_seqs=2)
    step = Step(array("i", [1]), [SeqRow(0, 1)])
    for field in ({"wanted": [0]}, {"block_tables": [array("i", [0])]}, {"sampling": []}):
        with pytest.raises(InvalidInput, match="for an encoder"):
            executor.run(replace(step, **field))
    assert executor.run(step).statuses == b"\0"
    executor.close()


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_step_is_refused_with_the_same_words(model: WasmtimeExecutor, bad: str) -> None:
    make, words = BAD[bad]
    with pytest.raises(InvalidInput) as ran:
        model.run(make())
    assert words in str(ran.value)
    told: Future[object] = Future()
    try:
        model.submit(make(), told.set_result)
    except InvalidInput as error:  # it is refused here, or the one who waits is told
        told.set_result(error)
    submitted = told.result(WAIT_S)
    assert isinstance(submitted, InvalidInput)
    assert str(submitted) == str(ran.value)
    assert model.run(good()).statuses == bytes(3)  # and nothing is broken by it


def test_sampling_data_beyond_its_room(model: WasmtimeExecutor) -> None:
    """Masks, all of the vocabulary penalized and biased, in every wanted row: too much."""
    everything = SamplingRow(
        penalized=[(i, 1, 1) for i in range(VOCAB)],
        bias=[(i, 0.5) for i in range(VOCAB)],
        mask=mask_of(VOCAB, range(VOCAB)),
    )
    with pytest.raises(InvalidInput, match=r"take \d+ words, expected at most \d+"):
        model.run(replace(good(), wanted=[0, 1, 2, 3], sampling=[everything] * 4))
    one = replace(good(), wanted=[39], sampling=[everything])
    assert len(model.run(one).sampled) == 1


def test_results_outlive_the_next_step(model: WasmtimeExecutor) -> None:
    first = model.run(replace(good(), sampling=None))
    kept = bytes(first.output)
    assert first.output.shape == (3, VOCAB)
    assert first.sampled == ()
    sampled = model.run(good())
    assert not sampled.output.nbytes
    assert len(sampled.sampled) == 3
    nothing = model.run(replace(good(), wanted=[], sampling=None))
    assert (nothing.output.nbytes, nothing.sampled) == (0, ())
    assert bytes(first.output) == kept


def test_submit_and_many_threads(model: WasmtimeExecutor) -> None:
    """Steps that read the same context and write their own blocks, from eight threads."""

    def one(i: int) -> bytes:
        tables = [array("i", [3, i % 4 + 8]), array("i", [5, i % 4 + 8])]
        step = Step(
            array("i", [7] * 32),
            [SeqRow(0, 32, 32)],
            block_tables=[tables[i % 2]],
            wanted=[31],
        )
        return bytes(model.run(step).output)

    model.run(Step(array("i", range(32)), [SeqRow(0, 32)], block_tables=[array("i", [3])]))
    wanted = [one(i) for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(one, [i % 8 for i in range(64)])) == wanted * 8
    event, results = threading.Event(), list[StepResult | BaseException]()

    def done(result: StepResult | BaseException) -> None:
        results.append(result)
        event.set()

    model.submit(good(), done)
    assert event.wait(WAIT_S)
    (result,) = results
    assert isinstance(result, StepResult)
    assert result.sampled == model.run(good()).sampled


def test_rows_that_lie_flat_are_rows(model: WasmtimeExecutor) -> None:
    step = good()
    flat = SeqRows(array("I", chain.from_iterable(step.seqs)))
    assert list(flat) == [*step.seqs]
    assert [flat[i] for i in range(-len(flat), len(flat))] == [*step.seqs] * 2
    assert flat[1:] == list(step.seqs[1:])
    with pytest.raises(IndexError):
        flat[len(flat)]
    assert model.run(replace(step, seqs=flat)).sampled == model.run(step).sampled
    short = SeqRows(array("I", [0, 1, 0, 0]))
    with pytest.raises(InvalidInput, match="the sequences hold 1 tokens, the step"):
        model.run(replace(step, seqs=short))


def test_submit_returns_when_the_step_is_under_way(
    model: WasmtimeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event loop that goes on to deliver tokens would keep Python from starting it."""
    monkeypatch.setattr(wasmtime_executor, "_HANDOVER_S", WAIT_S)
    written: list[Step] = []
    write = GenerationParts.write

    def note(self: GenerationParts, header: memoryview, step: Step, *rest: Any) -> None:
        write(self, header, step, *rest)
        written.append(step)

    monkeypatch.setattr(GenerationParts, "write", note)
    future: Future[StepResult | BaseException] = Future()
    step = good()
    model.submit(step, future.set_result)
    assert written == [step]
    assert isinstance(future.result(WAIT_S), StepResult)


def test_a_step_that_fails_before_it_begins_holds_nobody_up(model: WasmtimeExecutor) -> None:
    future: Future[StepResult | BaseException] = Future()
    model.submit(replace(good(), block_tables=()), future.set_result)
    assert isinstance(future.result(WAIT_S), InvalidInput)


def test_memory() -> None:
    small, large, half = (
        made(kv_blocks=n, kv_format=f) for n, f in ((8, "f32"), (64, "f32"), (64, "f16"))
    )
    caches = [m.memory_bytes["cache"] for m in (small, large, half)]
    assert small.memory_bytes["weights"] == large.memory_bytes["weights"]
    assert caches[1] > 7 * caches[0]
    assert caches[2] < 0.6 * caches[1]
    for m in (small, large, half):
        m.close()
    with pytest.raises(OutOfMemory, match="kv_blocks") as caught:
        made(kv_blocks=1 << 20)
    assert caught.value.bytes_requested > 1 << 30
