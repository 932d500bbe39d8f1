"""A result never depends on its neighbours, the order, or the threads: equal bytes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.executors.base import ModelExecutor, SeqRow, Step
from runtime_py.program import OpKind, PoolMode, TensorFormat
from tests.ops.backends import WASMTIME
from tests.ops.cases import all_cases, generation_cases
from tests.ops.cases.encoder import VOCAB, encoder, weights_of

FORMATS = (TensorFormat.F32, TensorFormat.F16, TensorFormat.I8B32, TensorFormat.I4B32)
MAX_TOKENS, MAX_SEQS = 1500, 12

Models = dict[tuple[TensorFormat, str], ModelExecutor]


@pytest.fixture(scope="module")
def models() -> Iterator[Models]:
    """Every build with a small encoder in every weight format."""
    made: Models = {}
    for fmt in FORMATS:
        program, parts = encoder(fmt)
        for build, make in WASMTIME.items():
            made[fmt, build] = make(program, weights_of(program, parts), MAX_TOKENS, MAX_SEQS)
    yield made
    for model in made.values():
        model.close()


def vectors(
    model: ModelExecutor, texts: Sequence[Sequence[int]], threads: int = 1, context: int = 0
) -> list[bytes]:
    """Each text's output bytes, all texts in one step."""
    rows, ids = [], array("i")
    for text in texts:
        rows.append(SeqRow(len(ids), len(text), context))
        ids.extend(text)
    result = model.run(Step(ids, rows, threads))
    assert result.statuses == bytes(len(texts))
    raw, width = result.output.tobytes(), result.output.shape[1] * 4
    return [raw[i : i + width] for i in range(0, len(raw), width)]


lengths = st.one_of(st.integers(1, 9), st.integers(1, 70), st.sampled_from([31, 32, 33, 64, 300]))
texts = st.lists(
    lengths.flatmap(lambda n: st.randoms(use_true_random=False).map(lambda r: _ids(r, n))),
    min_size=1,
    max_size=MAX_SEQS,
).filter(lambda ts: sum(map(len, ts)) <= MAX_TOKENS)


def _ids(random: Random, n: int) -> list[int]:
    return [random.randrange(VOCAB) for _ in range(n)]


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda f: f.name)
@given(texts=texts, data=st.data())
@settings(max_examples=25)
def test_E2_E4_a_vector_does_not_depend_on_batch_order_or_threads(
    models: Models, fmt: TensorFormat, texts: list[list[int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(texts))))
    shuffled = [texts[i] for i in order]
    by_build = {}
    for build in WASMTIME:
        model = models[fmt, build]
        alone = [vectors(model, [text])[0] for text in texts]
        by_build[build] = alone
        for threads in range(1, model.limits.threads + 1):
            assert vectors(model, texts, threads) == alone
            assert vectors(model, shuffled, threads) == [alone[i] for i in order]
    assert by_build["simd-threads"] == by_build["simd"]
    assert by_build["relaxed-threads"] == by_build["relaxed"]
    if fmt in (TensorFormat.I8B32, TensorFormat.I4B32):
        # one set of bits for every engine: nothing is fused, the dot products are exact
        assert by_build["relaxed"] == by_build["simd"]


@pytest.mark.parametrize("pool", [*PoolMode, None], ids=lambda p: p.name if p is not None else "x")
def test_E3_short_rows_equal_their_solo_results_in_every_pooling(pool: PoolMode | None) -> None:
    program, parts = encoder(TensorFormat.I8B32, layers=1, pool=pool)
    model = WASMTIME["relaxed-threads"](program, weights_of(program, parts), 400, 8)
    try:
        texts = [[1, 2], [7] * 250, [3], [4, 5, 6, 7, 8, 9, 10]]
        together = vectors(model, texts, threads=2)
        alone = [v for text in texts for v in vectors(model, [text])]
        assert together == alone
    finally:
        model.close()


ONE_STEP = {**all_cases(), **generation_cases()}


@pytest.mark.parametrize("name", ONE_STEP)
def test_E14_every_build_gives_the_same_bits(name: str) -> None:
    """Codes and activations at the ends of their ranges are among the cases.

    Only the f32 and f16 linear kernels may fuse a multiplication into an addition, in
    the relaxed builds.
    """
    case = ONE_STEP[name]
    outputs = {}
    for build, make in WASMTIME.items():
        model = make(case.program, case.weights(), len(case.step.token_ids), len(case.step.seqs))
        step = Step(case.step.token_ids, case.step.seqs, model.limits.threads)
        outputs[build] = bytes(model.run(step).output)
        model.close()
    fused = any(
        op.kind is OpKind.LINEAR
        and case.program.tensors[op.tensor("weight")].format in (TensorFormat.F32, TensorFormat.F16)
        for op in case.program.ops
    )
    assert outputs["simd-threads"] == outputs["simd"]
    assert outputs["relaxed-threads"] == outputs["relaxed"]
    assert fused or outputs["relaxed"] == outputs["simd"]
