"""On wasm a generated token never depends on the neighbours, chunks, threads or cache:
equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.executors.base import ModelExecutor, SamplingRow, Step
from runtime_py.executors.wasmtime import Variant, WasmtimeExecutor
from runtime_py.program import TensorFormat
from tests.ops.backends import WASMTIME_STEPS
from tests.ops.cases import steps_cases
from tests.ops.cases.cached import chunks, forked, forks, mixed, sequences, whole
from tests.ops.cases.decoder import POSITIONS, VOCAB, decoder
from tests.ops.cases.encoder import weights_of
from tests.ops.cases.paged import Paged
from tests.ops.generation import Request, generate
from tests.ops.test_generation import LIMITS, reference, requests

F = TensorFormat
KINDS = ((F.F32, 0), (F.F16, 0), (F.S8B32, 8), (F.S8B32, 16), (F.I8B32, 16), (F.I4B32, 8))
BUILDS: dict[Variant, int] = {"simd": 1, "relaxed": 1, "simd-threads": 2, "relaxed-threads": 2}

Models = dict[tuple[TensorFormat, int, Variant], ModelExecutor]
Bits = dict[tuple[int, int], bytes]
"""The logits' bytes of each (sequence, position)."""


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    """Every build with a small decoder in every weight format."""
    made: Models = {}
    for fmt, bits in KINDS:
        program, parts = decoder(fmt, bits, window=40)
        for build, threads in BUILDS.items():
            made[fmt, bits, build] = WasmtimeExecutor.from_weights(
                program,
                weights_of(program, parts),
                variant=build,
                threads=threads,
                max_tokens=LIMITS.max_tokens,
                max_seqs=LIMITS.max_seqs,
                kv_blocks=LIMITS.kv_blocks,
                max_wanted=LIMITS.max_wanted,
                kv_format="f16" if fmt is F.F16 else "f32",
            )
    yield made
    for model in made.values():
        model.close()


def bits_of(
    model: ModelExecutor,
    plan: Callable[[Paged], None],
    texts: Sequence[Sequence[int]],
    threads: int = 1,
) -> Bits:
    paged = Paged(texts, LIMITS.kv_blocks)
    plan(paged)
    found: Bits = {}
    for s, rows in zip(paged.steps, paged.rows, strict=True):
        step = Step(s.token_ids, s.seqs, threads, s.block_tables, s.copies, s.wanted)
        result = model.run(step)
        assert not any(result.statuses)
        raw, width = result.output.tobytes(), 4 * VOCAB
        found.update((row, raw[i * width : (i + 1) * width]) for i, row in enumerate(rows))
    return found


@pytest.mark.parametrize(("fmt", "bits"), KINDS, ids=str)
def test_chunks_batches_threads_and_builds_give_the_same_bits(
    models: Models, fmt: F, bits: int
) -> None:
    texts = sequences(VOCAB)
    by_build = {}
    for build in BUILDS:
        model = models[fmt, bits, build]
        alone: Bits = {}
        for i in range(len(texts)):
            alone |= bits_of(model, lambda p, i=i: p.step((i, len(p.sequences[i]))), texts)
        by_build[build] = alone
        for threads in range(1, model.limits.threads + 1):
            assert bits_of(model, whole, texts, threads) == alone
            for plan in (chunks(1), chunks(7), chunks(32), chunks(45), mixed):
                got = bits_of(model, plan, texts, threads)
                assert len(got) > 40
                assert got.items() <= alone.items()
    assert by_build["simd-threads"] == by_build["simd"]
    assert by_build["relaxed-threads"] == by_build["relaxed"]
    if fmt not in (F.F32, F.F16):
        assert by_build["relaxed"] == by_build["simd"]


@pytest.mark.parametrize(("fmt", "bits"), KINDS, ids=str)
def test_a_fork_gives_the_bits_of_the_whole(models: Models, fmt: F, bits: int) -> None:
    texts = forks(VOCAB)
    for build in BUILDS:
        model = models[fmt, bits, build]
        alone = bits_of(model, whole, texts)
        got = bits_of(model, forked, texts, model.limits.threads)
        assert got.items() <= alone.items()


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    data=st.data(),
)
@settings(max_examples=25)
def test_C14_any_schedule_gives_the_bits_of_the_whole(
    models: Models, lengths: list[int], seed: int, data: st.DataObject
) -> None:
    """Any chunks of any sequences in any steps, blocks given back and used again."""
    texts = sequences(VOCAB, lengths, seed)

    def plan(p: Paged) -> None:
        left = list(lengths)
        while any(left):
            ready = [i for i, n in enumerate(left) if n]
            some = data.draw(st.lists(st.sampled_from(ready), min_size=1, unique=True))
            taken = [(i, data.draw(st.integers(1, min(left[i], 40)))) for i in some]
            p.step(*taken)
            for i, n in taken:
                left[i] -= n
                if not left[i]:
                    p.end(i)

    for fmt, bits in ((F.S8B32, 16), (F.I4B32, 8)):
        model = models[fmt, bits, "relaxed-threads"]
        assert bits_of(model, plan, texts, 2) == bits_of(model, whole, texts)


@pytest.mark.parametrize(("fmt", "bits"), KINDS, ids=str)
def test_G5_32_generations_joining_leaving_preempted_and_in_chunks(
    models: Models, fmt: F, bits: int
) -> None:
    preempt = {(4, 0), (9, 0), (9, 7), (12, 20), (13, 20)}
    for build, threads in BUILDS.items():
        model = models[fmt, bits, build]
        alone = [generate(model, [replace(r, joins=0)], chunk=100)[0] for r in requests()]
        assert generate(model, requests(), chunk=16, threads=threads, preempt=preempt) == alone
        assert generate(model, requests(), chunk=1, threads=threads) == alone
        asked = [replace(r, joins=0) for r in requests()[:7]]
        assert generate(model, asked, chunk=100, threads=threads) == alone[:7]


def test_samples_of_one_prompt_share_its_blocks(models: Models) -> None:
    model = models[F.I8B32, 16, "relaxed-threads"]
    for length in (33, 40, 64, 2):
        prompt = sequences(VOCAB, [length])[0]
        row = SamplingRow(1.0)
        several = [Request(prompt, 12, row)] + [
            Request(prompt, 12, row._replace(seed=i), joins=2 + i, fork_of=0) for i in (1, 2, 3)
        ]
        one_by_one = [
            generate(model, [Request(prompt, 12, row._replace(seed=i))])[0] for i in range(4)
        ]
        assert generate(model, several) == one_by_one


@pytest.mark.parametrize(("fmt", "bits"), [(F.F32, 0), (F.I8B32, 16)], ids=str)
def test_the_reference_generates_the_same_tokens(models: Models, fmt: F, bits: int) -> None:
    wanted = generate(reference(fmt, bits), requests())
    assert generate(models[fmt, bits, "relaxed-threads"], requests()) == wanted


@pytest.mark.parametrize("name", steps_cases())
def test_E14_every_build_gives_the_same_bits(name: str) -> None:
    case = steps_cases()[name]
    outputs = []
    for make in WASMTIME_STEPS.values():
        model = make(case)
        threads = model.limits.threads
        results = [model.run(replace(step, threads=threads)) for step in case.steps]
        model.close()
        outputs.append([(bytes(r.output), repr(r.sampled), r.statuses) for r in results])
    assert all(output == outputs[0] for output in outputs)


def test_positions_up_to_the_last(models: Models) -> None:
    """A sequence as long as the model takes, decoding its last positions."""
    text = sequences(VOCAB, [POSITIONS])
    model = models[F.S8B32, 16, "relaxed"]
    alone = bits_of(model, whole, text)

    def plan(p: Paged) -> None:
        p.step((0, POSITIONS - 3))
        for _ in range(3):
            p.step((0, 1))

    assert bits_of(model, plan, text) == alone
