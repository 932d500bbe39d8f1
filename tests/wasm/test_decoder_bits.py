"""A position's logits have the same bits however its sequence came into the cache."""

from __future__ import annotations

from array import array
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.executors.base import SamplingRow, SeqRow, Step
from runtime_py.program import Program, TensorFormat
from tests.ops.cases.paged import Paged
from tests.wasm import models
from tests.wasm.decoder import F16, F32, DecoderHost
from tests.wasm.driver import OK

I4, I8, S8 = TensorFormat.I4B32, TensorFormat.I8B32, TensorFormat.S8B32
VOCAB = 77


def texts(seed: int, lengths: list[int]) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCAB, n).tolist() for n in lengths]


def run(host: DecoderHost, paged: Paged) -> dict[tuple[int, int], bytes]:
    """The logits of every wanted (sequence, position)."""
    found = {}
    for step, rows in zip(paged.steps, paged.rows, strict=True):
        for row, logits in zip(rows, host.step(step), strict=True):
            found[row] = logits.tobytes()
    return found


def host_of(program: Program, variant: str, kv_format: int) -> DecoderHost:
    return DecoderHost(
        program,
        models.random_parts(program),
        variant,
        tokens=320,
        kv_blocks=24,
        kv_format=kv_format,
        max_wanted=320,
    )


def one_by_one(sequences: list[list[int]]) -> Paged:
    """Each prompt whole, in a step of its own."""
    paged = Paged(sequences, blocks=24)
    for i, text in enumerate(sequences):
        paged.step((i, len(text)))
    return paged


@st.composite
def schedules(draw: st.DrawFn) -> tuple[Paged, Paged]:
    """The same sequences in one step each, and cut and mixed at random."""
    lengths = draw(st.lists(st.integers(1, 100), min_size=1, max_size=4))
    sequences = texts(draw(st.integers(0, 1000)), lengths)
    cut = Paged(sequences, blocks=24, seed=draw(st.integers(0, 99)))
    left = dict(enumerate(lengths))
    while left:
        here = draw(st.lists(st.sampled_from(sorted(left)), min_size=1, unique=True))
        sizes = [
            draw(st.integers(1, min(left[i], draw(st.sampled_from((1, 9, 99)))))) for i in here
        ]
        cut.step(*zip(here, sizes, strict=True))
        left = {i: n - dict(zip(here, sizes, strict=True)).get(i, 0) for i, n in left.items()}
        left = {i: n for i, n in left.items() if n}
    return one_by_one(sequences), cut


@settings(max_examples=20)
@given(
    schedules(),
    st.sampled_from([(I4, 8, 0), (I4, 16, 0), (I8, 8, 20), (S8, 16, 33)]),
    st.sampled_from([F32, F16]),
)
def test_bits_do_not_depend_on_the_schedule(
    plans: tuple[Paged, Paged], model: tuple[TensorFormat, int, int], kv_format: int
) -> None:
    format, bits, window = model
    program = models.decoder(format, bits=bits, window=window)
    whole, cut = plans
    wanted = run(host_of(program, "simd", kv_format), whole)
    assert run(host_of(program, "relaxed", kv_format), cut) == wanted


def test_copied_and_shared_blocks_hold_the_same_bits() -> None:
    base, *tails = texts(3, [40, 25, 9])
    sequences = [base + tails[0], base + tails[1]]
    paged = Paged(sequences, blocks=24)
    paged.step((0, 40))
    paged.fork(0, 1)
    paged.step((0, 1), (1, 1))
    paged.step((1, 8), (0, 24))
    program = models.decoder()
    wanted = run(host_of(program, "simd", F32), one_by_one(sequences))
    got = run(host_of(program, "relaxed", F32), paged)
    assert {row: logits for row, logits in wanted.items() if row in got} == got


def test_a_cache_in_f16_rounds_to_nearest_even() -> None:
    """Values of one query over one key come back as the cache holds them."""
    rng = np.random.default_rng(0)
    subnormal = [2.0**-24, 2.0**-25, 1.5 * 2.0**-24, 2.5 * 2.0**-24]
    ties = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 2049.0, 2051.0]
    special = [0.0, -0.0, *subnormal, *ties, 65504, 65519]
    bits = rng.integers(0x33000000, 0x477FE000, 200, dtype=np.uint32).view(np.float32)
    x = np.zeros((16, 32), np.float32)
    x[:, 16:] = np.resize(np.array([*special, *bits, *-bits], np.float32), (16, 16))
    program = models.cache_only(16)
    host = DecoderHost(program, {"table": x.tobytes()}, kv_format=F16)
    paged = Paged([[i] for i in range(8)], blocks=16)
    paged.step(*((i, 1) for i in range(8)))
    with np.errstate(over="ignore"):
        half = x[:8].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(host.step(paged.steps[0])[:, :16], half[:, 16:])


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 65520.0])
def test_a_cache_in_f16_keeps_what_is_not_finite(value: float) -> None:
    x = np.ones((16, 32), np.float32)
    x[3, 20] = value
    host = DecoderHost(models.cache_only(16), {"table": x.tobytes()}, kv_format=F16)
    paged = Paged([[3], [4]], blocks=4)
    paged.step((0, 1), (1, 1))
    with np.errstate(over="ignore"):
        half = x[3:5].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(host.step(paged.steps[0])[:, :16], half[:, 16:])
    assert host.statuses(2) == b"\1\0"


def step_of(sampling: list[SamplingRow]) -> Step:
    """One token per sequence, all wanted."""
    n = len(sampling)
    ids = array("i", range(n))
    seqs = [SeqRow(i, 1) for i in range(n)]
    return Step(ids, seqs, 1, [array("i", [i]) for i in range(n)], (), tuple(range(n)), sampling)


def test_a_sampled_row_does_not_depend_on_its_neighbours() -> None:
    random = Random(5)
    rows = [
        SamplingRow(
            temperature=random.choice([0.0, 2.0, 5.0]),
            top_k=random.choice([0, 3, 20]),
            top_p=random.choice([1.0, 0.8]),
            min_p=random.choice([0.0, 0.01]),
            repetition_penalty=random.choice([1.0, 1.3]),
            penalized=((2, 1, 1), (9, 0, 4)),
            bias=((5, 1.5),),
            mask=random.choice([None, b"\xfe" * 12]),
            seed=random.getrandbits(64),
            position=i,
            top_logprobs=random.choice([0, 5, 20]),
        )
        for i in range(8)
    ]
    program = models.decoder()
    parts = models.random_parts(program)
    together = DecoderHost(program, parts).sample(step_of(rows))
    assert len({s.token_id for s in together}) > 2
    relaxed = DecoderHost(program, parts, "relaxed")
    assert relaxed.sample(step_of(rows)) == together
    for i, row in enumerate(rows):
        step = Step(array("i", [i]), [SeqRow(0, 1)], 1, [array("i", [7])], (), (0,), [row])
        assert relaxed.sample(step) == [together[i]]


def test_no_wanted_rows_is_a_step_too() -> None:
    program = models.decoder()
    host = DecoderHost(program, models.random_parts(program))
    for sampling in (None, []):
        host.fill_step(
            Step(array("i", [1]), [SeqRow(0, 1)], 1, [array("i", [0])], (), (), sampling)
        )
        assert host.call("v_run", 0) == OK
        assert host.statuses(1) == b"\0"
