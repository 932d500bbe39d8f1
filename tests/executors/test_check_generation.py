"""A decoder's step outside its limits is refused before any work, in one line."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_py.errors import InvalidInput, InvalidType
from runtime_py.executors.base import ExecutorLimits, SamplingRow, SeqRow, Step
from runtime_py.executors.check import check_step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.program import TensorFormat
from tests.ops.cases import steps_cases
from tests.ops.cases.decoder import POSITIONS, VOCAB, decoder
from tests.ops.cases.encoder import encoder, weights_of
from tests.ops.cases.sampling import mask_of
from tests.ops.cases.steps import output_of

BLOCKS, WANTED = 12, 4
LIMITS = ExecutorLimits(200, 6, 1, 1, kv_blocks=BLOCKS, max_wanted=WANTED)
PROGRAM, PARTS = decoder(TensorFormat.F32)


def good() -> Step:
    """A chunk of 40 tokens after 30, a decode at position 32, a prompt of 5."""
    return Step(
        array("i", range(46)),
        [SeqRow(0, 40, 30), SeqRow(40, 1, 32), SeqRow(41, 5)],
        block_tables=[array("i", t) for t in ([3, 1, 4], [5, 9], [2])],
        copies=[(5, 8), (5, 7), (9, 6)],
        wanted=[39, 40, 45],
        sampling=[SamplingRow(), SamplingRow(1.0, seed=2**64 - 1), SamplingRow(top_logprobs=20)],
    )


def tables(*rows: Sequence[int]) -> Step:
    return replace(good(), block_tables=[array("i", t) for t in rows])


def sampled(**fields: object) -> Step:
    row = SamplingRow(**fields)  # type: ignore[arg-type]
    return replace(good(), sampling=[SamplingRow(), row, SamplingRow()])


def test_the_good_step_is_good() -> None:
    check_step(PROGRAM, LIMITS, good())
    check_step(PROGRAM, LIMITS, replace(good(), sampling=None, wanted=[0, 1, 2, 45]))
    check_step(PROGRAM, LIMITS, replace(good(), sampling=None, wanted=[], copies=[]))
    # spare ids, a prefix shared by two sequences, a block read while it is written
    check_step(PROGRAM, LIMITS, tables([3, 1, 4, 11, 99], [3, 9], [2]))
    check_step(PROGRAM, LIMITS, tables([3, 1, 4], [3, 0], [2]))


BAD: dict[str, tuple[Callable[[], Step], str]] = {
    "no-tables": (lambda: tables(), "has 0 tables, expected 3"),
    "table-missing": (lambda: tables([3, 1, 4], [5, 9]), "has 2 tables, expected 3"),
    "table-short": (
        lambda: tables([3, 1], [5, 9], [2]),
        "block table 0 has 2 blocks, expected at least 3 for 70 tokens",
    ),
    "table-short-by-its-context": (lambda: tables([3, 1, 4], [5], [2]), "table 1 has 1 blocks"),
    "more-than-the-cache": (
        lambda: replace(
            tables([3] * 12 + [1], [5, 9], [2]),
            seqs=[SeqRow(0, 40, 12 * 32 - 30), *good().seqs[1:]],
        ),
        "sequence 0 has 394 tokens, expected at most 384",
    ),
    "table-empty": (lambda: tables([3, 1, 4], [5, 9], []), "table 2 has 0 blocks"),
    "block-past-the-cache": (
        lambda: tables([3, 1, 4], [5, BLOCKS], [2]),
        "table 1 has block 12, expected 0 to 11",
    ),
    "block-negative": (lambda: tables([3, 1, 4], [5, 9], [-1]), "table 2 has block -1"),
    "written-by-two": (
        lambda: tables([3, 1, 4], [5, 9], [4]),
        "sequences 0 and 2 both write block 4",
    ),
    "written-twice": (lambda: tables([3, 4, 4], [5, 9], [2]), "0 and 0 both write block 4"),
    "copy-from": (lambda: replace(good(), copies=[(BLOCKS, 1)]), "copy 0 is from block 12"),
    "copy-to": (lambda: replace(good(), copies=[(1, 2), (1, -1)]), "copy 1 is to block -1"),
    "copy-twice": (lambda: replace(good(), copies=[(1, 2), (3, 2)]), "copy 1 is to block 2"),
    "copy-of-a-copy": (lambda: replace(good(), copies=[(1, 2), (2, 3)]), "copy 0 is to block 2"),
    "copy-onto-itself": (lambda: replace(good(), copies=[(1, 1)]), "copy 0 is to block 1"),
    "wanted-many": (
        lambda: replace(good(), wanted=range(5), sampling=None),
        "wanted has 5 rows, expected at most 4",
    ),
    "wanted-past": (lambda: replace(good(), wanted=[0, 1, 46]), "wanted row 2 is token 46"),
    "wanted-negative": (lambda: replace(good(), wanted=[-1, 1, 2]), "wanted row 0 is token -1"),
    "wanted-twice": (lambda: replace(good(), wanted=[3, 3, 5]), "row 1 is token 3, expected 4 to"),
    "wanted-descending": (lambda: replace(good(), wanted=[3, 5, 4]), "row 2 is token 4"),
    "sampling-short": (lambda: replace(good(), sampling=[]), "sampling has 0 rows, expected 3"),
    "context-past-positions": (
        lambda: replace(good(), seqs=[SeqRow(0, 40, POSITIONS - 39), *good().seqs[1:]]),
        "positions 361 to 400",
    ),
    "penalized-id": (lambda: sampled(penalized=[(VOCAB, 0, 1)]), "penalized has id 101"),
    "penalized-negative": (lambda: sampled(penalized=[(-1, 0, 1)]), "penalized has id -1"),
    "penalized-twice": (lambda: sampled(penalized=[(1, 0, 1), (1, 2, 0)]), "id 1 twice"),
    "penalized-count": (lambda: sampled(penalized=[(1, 0, -1)]), "count -1"),
    "bias-id": (lambda: sampled(bias=[(5, 1.0), (VOCAB, 1.0)]), "bias has id 101"),
    "bias-twice": (lambda: sampled(bias=[(5, 1.0), (6, 1.0), (5, 1.0)]), "id 5 twice"),
    "bias-nan": (lambda: sampled(bias=[(5, float("nan"))]), "bias is nan"),
    "bias-infinite": (lambda: sampled(bias=[(5, -float("inf"))]), "bias is -inf"),
    "mask-short": (lambda: sampled(mask=b"\1" * 12), "mask has 12 bytes, expected 16 for 101"),
    "mask-long": (lambda: sampled(mask=b"\1" * 20), "mask has 20 bytes"),
    "mask-empty": (lambda: sampled(mask=bytes(16)), "allows no token"),
    "mask-past-the-vocabulary": (lambda: sampled(mask=mask_of(128, [101, 127])), "allows no token"),
}
OUT_OF_RANGE = {
    "temperature": (-0.1, 1e-9, 1e7, float("nan"), float("inf")),
    "top_k": (-1, 2**31),
    "top_p": (0.0, -1.0, 1.01, float("nan")),
    "min_p": (-0.1, 1.1, float("nan")),
    "repetition_penalty": (0.0, -1.0, 1e4, float("nan")),
    "presence_penalty": (-1001.0, float("inf"), float("nan")),
    "frequency_penalty": (1001.0, -float("inf"), float("nan")),
    "seed": (-1, 2**64),
    "position": (-1, 2**32),
    "top_logprobs": (-1, 21),
}
for name, values in OUT_OF_RANGE.items():
    for value in values:
        BAD[f"{name}-{value}"] = (
            lambda name=name, value=value: sampled(**{name: value}),
            f"sampling row 1: {name} is {value}, expected",
        )


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_step_is_refused_in_one_line(bad: str) -> None:
    make, words = BAD[bad]
    with pytest.raises(InvalidInput) as caught:
        check_step(PROGRAM, LIMITS, make())
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("table", [[3, 1, 4], (3, 1, 4), array("q", [3, 1, 4])])
def test_block_tables_of_another_type(table: object) -> None:
    step = replace(good(), block_tables=[table, *good().block_tables[1:]])  # type: ignore[list-item]
    with pytest.raises(InvalidType, match=r"block table 0 is \w+, expected array"):
        check_step(PROGRAM, LIMITS, step)
    with pytest.raises(InvalidType, match="mask is list, expected bytes"):
        check_step(PROGRAM, LIMITS, sampled(mask=[1] * 16))


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ({"block_tables": [array("i", [0])]}, "block_tables has 1 entries"),
        ({"copies": [(0, 1)]}, "copies has 1 entries"),
        ({"wanted": [0]}, "wanted has 1 entries"),
        ({"sampling": []}, "sampling is given"),
    ],
)
def test_an_encoder_takes_none_of_it(field: dict, words: str) -> None:
    program, parts = encoder(TensorFormat.F32)
    executor = ReferenceExecutor.from_weights(program, weights_of(program, parts))
    step = Step(array("i", [1]), [SeqRow(0, 1)])
    with pytest.raises(InvalidInput, match=words):
        executor.run(replace(step, **field))
    assert executor.run(step).statuses == b"\0"


def test_a_refused_step_leaves_the_cache_as_it_was() -> None:
    case = steps_cases()["cached-attention-mixed"]
    executor = ReferenceExecutor.from_weights(case.program, case.weights(), limits=case.limits)
    for step, wanted in zip(case.steps, case.expected(), strict=True):
        last = len(step.token_ids) - 1
        for bad in (
            replace(step, copies=[(0, 99)]),
            replace(step, wanted=[last + 1]),
            replace(step, wanted=[last], sampling=[SamplingRow(top_p=2.0)]),
        ):
            with pytest.raises(InvalidInput):
                executor.run(bad)
        np.testing.assert_array_equal(output_of(case.program, step, executor.run(step)), wanted)


def test_limits_that_do_not_fit_the_program() -> None:
    weights = weights_of(PROGRAM, PARTS)
    for limits in (replace(LIMITS, kv_blocks=0), replace(LIMITS, max_wanted=0)):
        with pytest.raises(InvalidInput, match="expected at least 1 for a decoder"):
            ReferenceExecutor.from_weights(PROGRAM, weights, limits=limits)
    program, parts = encoder(TensorFormat.F32)
    with pytest.raises(InvalidInput, match="expected 0 for an encoder"):
        ReferenceExecutor.from_weights(program, weights_of(program, parts), limits=LIMITS)
    with pytest.raises(InvalidInput, match="kv_format is 'q8'"):
        ReferenceExecutor.from_weights(PROGRAM, weights, kv_format="q8")  # type: ignore[arg-type]


@given(data=st.data())
def test_whatever_passes_writes_every_block_once(data: st.DataObject) -> None:
    """Steps of small numbers: accepted ones keep the rules of docs/design.md 7.2."""
    lengths = data.draw(st.lists(st.integers(1, 70), min_size=1, max_size=3))
    contexts = [data.draw(st.integers(0, 64)) for _ in lengths]
    rows = [SeqRow(sum(lengths[:i]), n, contexts[i]) for i, n in enumerate(lengths)]
    numbers = st.integers(-1, BLOCKS)
    step = Step(
        array("i", [0] * sum(lengths)),
        rows,
        block_tables=[
            array("i", data.draw(st.lists(numbers, min_size=1, max_size=5))) for _ in lengths
        ],
        copies=data.draw(st.lists(st.tuples(numbers, numbers), max_size=3)),
        wanted=data.draw(st.lists(st.integers(-1, 210), max_size=3)),
    )
    limits = replace(LIMITS, max_tokens=210)
    try:
        check_step(PROGRAM, limits, step)
    except InvalidInput:
        return
    written = [
        t[position // 32]
        for r, t in zip(step.seqs, step.block_tables, strict=True)
        for position in range(r.context_len // 32 * 32, r.context_len + r.num_tokens, 32)
    ]
    assert len(set(written)) == len(written)
    read = [
        block
        for r, t in zip(step.seqs, step.block_tables, strict=True)
        for block in t[: -(-(r.context_len + r.num_tokens) // 32)]
    ]
    assert all(0 <= b < BLOCKS for b in [*read, *(b for c in step.copies for b in c)])
    into = [b for _, b in step.copies]
    assert len(set(into)) == len(into)
    assert not set(into) & {a for a, _ in step.copies}
    assert list(step.wanted) == sorted(set(step.wanted))
    assert all(0 <= w < sum(lengths) for w in step.wanted)
