"""The ABI's part for decoders: what it refuses, and that nothing a host writes traps."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.executors.base import SamplingRow, SeqRow, Step
from tests.wasm import models
from tests.wasm.decoder import (
    BLOCKS,
    COPIES,
    F16,
    F32,
    GENERATION,
    NO_MASK,
    SAMPLE,
    SAMPLE_DATA,
    SAMPLE_ROW,
    SAMPLED,
    TABLES,
    WANTED,
    DecoderHost,
)
from tests.wasm.driver import BAD_CALL, BAD_STEP, NO_MEMORY, OK, OUTPUT, SEQS, TOKENS, Host

PROGRAM = models.decoder()
PARTS = models.random_parts(PROGRAM)
VOCAB, POSITIONS, KV_BLOCKS = PROGRAM.vocab_size, PROGRAM.max_positions, 16
COUNTS, TOKEN, ROWS, POSITION, WANTED_FAULT, BLOCK_FAULT, COPY_FAULT, SAMPLE_FAULT = range(1, 9)


def created(program: bytes = PROGRAM.encode(), max_pages: int = 4096) -> Host:
    host = Host(max_pages=max_pages)
    assert host.create(program) == OK
    return host


@pytest.mark.parametrize(
    ("argument", "value"),
    [(0, 0), (0, 1 << 31), (1, 2), (2, 0), (3, 0xFFFFFFFF)],
)
def test_cache_refuses_arguments(argument: int, value: int) -> None:
    host = created()
    args = [KV_BLOCKS, F32, 8, 100]
    args[argument] = value
    assert host.call("v_cache", *args) == BAD_CALL
    assert host.detail()[0] == argument + 1
    assert host.call("v_cache", KV_BLOCKS, F32, 8, 0) == OK


def test_cache_is_called_once_between_create_and_seal() -> None:
    host = Host()
    assert host.call("v_cache", KV_BLOCKS, F32, 8, 100) == BAD_CALL
    host = created()
    assert host.call("v_workspace", 0, TABLES) == 0
    assert host.call("v_seal") == BAD_CALL
    assert host.call("v_cache", KV_BLOCKS, F32, 8, 100) == OK
    assert host.call("v_cache", KV_BLOCKS, F32, 8, 100) == BAD_CALL
    host.load(PROGRAM, PARTS)
    assert host.call("v_cache", KV_BLOCKS, F32, 8, 100) == BAD_CALL


def test_an_encoder_has_no_cache_and_wants_no_rows() -> None:
    program = models.everything()
    host = created(program.encode())
    assert host.call("v_cache", KV_BLOCKS, F32, 8, 100) == BAD_CALL
    host.load(program, models.random_parts(program))
    for part in range(TABLES, SAMPLED + 1):
        assert host.call("v_workspace", 0, part) == host.call("v_part_bytes", part) == 0
    host.fill([3], range(3))
    header = host.call("v_workspace", 0, 0)
    host.write(header + GENERATION, b"\1")
    assert host.call("v_run", 0) == BAD_STEP
    host.write(header + GENERATION, b"\0")
    assert host.call("v_run", 0) == OK


def test_part_sizes() -> None:
    host = created()
    assert host.call("v_part_bytes", OUTPUT) == 0
    assert host.call("v_cache", KV_BLOCKS, F32, 1 << 20, 100) == OK
    wanted = 64  # max_wanted is at most max_tokens
    tables = 8 * min(KV_BLOCKS, POSITIONS // 32)
    sizes = [host.call("v_part_bytes", part) for part in range(SAMPLED + 2)]
    assert sizes == [
        *(32, 64 * 4, 8 * 16, wanted * VOCAB * 4, 8),
        *(8 * 4, tables * 4, KV_BLOCKS * 8, wanted * 4, wanted * 64, 400, wanted * 176, 0),
    ]


def test_memory_of_the_cache() -> None:
    sizes = {}
    for kv_format in (F32, F16):
        host = created()
        assert host.call("v_memory_bytes", 3) == 0
        assert host.call("v_cache", KV_BLOCKS, kv_format, 8, 0) == OK
        sizes[kv_format] = host.call("v_memory_bytes", 3)
    per_token = 2 * 2 * 2 * 12  # layers, keys and values, heads, columns
    for kv_format, size in ((F32, 4), (F16, 2)):
        exact = KV_BLOCKS * 32 * per_token * size
        assert exact <= sizes[kv_format] <= exact + 2 * 1024


def test_a_cache_that_does_not_fit_leaves_room_for_a_smaller_one() -> None:
    host = created(max_pages=64)
    assert host.call("v_cache", 1 << 20, F32, 8, 100) == NO_MEMORY
    low, high = host.detail()
    assert low + (high << 32) > 1 << 20
    assert host.call("v_cache", 4, F32, 8, 100) == OK
    host.load(PROGRAM, PARTS)


def good_step() -> Step:
    """Two sequences: 3 tokens after 40 others, and a decode; everything a step can have."""
    sampling = [
        SamplingRow(1.0, penalized=((3, 1, 2),), bias=((4, 1.0),), mask=b"\xff" * 12),
        SamplingRow(0.0, top_logprobs=20),
    ]
    return Step(
        array("i", [1, 2, 3, 4]),
        [SeqRow(0, 3, 40), SeqRow(3, 1, 32)],
        1,
        [array("i", [5, 6]), array("i", [5, 7])],
        [(1, 2), (1, 3)],
        (0, 3),
        sampling,
    )


@pytest.fixture(scope="module")
def host() -> DecoderHost:
    return DecoderHost(PROGRAM, PARTS, kv_blocks=KV_BLOCKS, data_words=256)


HEADER = -1
"""Of the header's words behind GENERATION."""


@pytest.mark.parametrize(
    ("part", "word", "value", "fault", "index"),
    [
        (HEADER, 0, 65, WANTED_FAULT, 65),
        (HEADER, 1, KV_BLOCKS + 1, COPY_FAULT, KV_BLOCKS + 1),
        (HEADER, 2, 2, COUNTS, 2),
        (TABLES, 1, 39, BLOCK_FAULT, 1),  # of 8 * 5 entries
        (TABLES, 0, 0xFFFFFFFF, BLOCK_FAULT, 0),
        (TABLES, 1, 0, BLOCK_FAULT, 1),  # both write block 6
        (BLOCKS, 0, KV_BLOCKS, BLOCK_FAULT, 0),
        (BLOCKS, 3, 0xFFFFFFFF, BLOCK_FAULT, 1),
        (BLOCKS, 3, 6, BLOCK_FAULT, 1),
        (COPIES, 0, KV_BLOCKS, COPY_FAULT, 0),
        (COPIES, 3, KV_BLOCKS, COPY_FAULT, 1),
        (COPIES, 3, 2, COPY_FAULT, 1),  # written twice
        (COPIES, 2, 2, COPY_FAULT, 1),  # read after it was written
        (COPIES, 3, 1, COPY_FAULT, 1),  # written after it was read
        (WANTED, 1, 4, WANTED_FAULT, 1),
        (WANTED, 1, 0, WANTED_FAULT, 1),  # not ascending
        (SAMPLE_DATA, 0, VOCAB, SAMPLE_FAULT, 0),
        (SAMPLE_DATA, 3, VOCAB, SAMPLE_FAULT, 0),
        (SAMPLE_DATA, 4, 0x7FC00000, SAMPLE_FAULT, 0),  # a bias of NaN
        (SEQS, 2, 158, POSITION, 0),
        (TOKENS, 1, VOCAB, TOKEN, 1),
    ],
)
def test_step_faults_name_the_culprit(
    host: DecoderHost, part: int, word: int, value: int, fault: int, index: int
) -> None:
    host.fill_step(good_step())
    start = GENERATION if part == HEADER else 0
    at = host.call("v_workspace", 0, max(part, 0)) + start + 4 * word
    host.write(at, np.uint32(value).tobytes())
    assert host.call("v_run", 0) == BAD_STEP
    assert host.detail() == (fault, index)
    host.fill_step(good_step())
    assert host.call("v_run", 0) == OK


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1.0),
        ("temperature", 1e-7),
        ("temperature", np.nan),
        ("temperature", np.inf),
        ("top_p", 1.5),
        ("top_p", np.nan),
        ("min_p", -0.1),
        ("repetition", 0.0),
        ("repetition", 2e3),
        ("presence", np.nan),
        ("frequency", -2e3),
        ("top_logprobs", 21),
        ("penalized_at", 257),
        ("penalized_count", 0xFFFFFFFF),
        ("bias_at", 0xFFFFFFFF),
        ("bias_count", 0x80000000),
        ("mask_at", 254),
        ("mask_at", 0xFFFFFFFE),
        ("mask_at", 100),  # allows no token
    ],
)
def test_sampling_records_out_of_range(host: DecoderHost, field: str, value: float) -> None:
    host.fill_step(good_step())
    host.write(host.call("v_workspace", 0, SAMPLE_DATA) + 400, bytes(12))
    at = host.call("v_workspace", 0, SAMPLE)
    records = np.frombuffer(host.read(at, 128), SAMPLE_ROW).copy()
    records[1][field] = value
    host.write(at, records.tobytes())
    assert host.call("v_run", 0) == BAD_STEP
    assert host.detail() == (SAMPLE_FAULT, 1)


WORDS = st.one_of(
    st.integers(0, 8),
    st.sampled_from([31, 32, 33, 64, KV_BLOCKS - 1, KV_BLOCKS, 0x7FFFFFFF, 0xFFFFFFFF, NO_MASK]),
    st.sampled_from([np.float32(x).view("<u4").item() for x in (0, 1, 0.5, 1e-3, 1e6, np.nan)]),
    st.integers(0, 0xFFFFFFFF),
)


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([HEADER, SEQS, *range(TABLES, SAMPLED)]), st.integers(0, 40), WORDS
        ),
        min_size=1,
        max_size=4,
    )
)
def test_hostile_steps_are_refused_or_run(
    host: DecoderHost, damage: list[tuple[int, int, int]]
) -> None:
    """Whatever stands in a workspace's inputs: a status, never a trap."""
    host.fill_step(good_step())
    for part, word, value in damage:
        start = GENERATION if part == HEADER else 0
        size = 12 if part == HEADER else host.call("v_part_bytes", part)
        at = host.call("v_workspace", 0, max(part, 0)) + start + 4 * word % size
        host.write(at, np.uint32(value).tobytes())
    assert host.call("v_run", 0) in (OK, BAD_STEP)


@pytest.mark.parametrize("extreme", [3e38, -3e38, 1e30])
def test_penalties_that_leave_the_range_of_f32_do_not_trap(extreme: float) -> None:
    """Logits are finite, what sampling makes of them is not: some token comes out."""
    program = models.cache_only(16)
    x = np.zeros((16, 32), np.float32)
    x[:, 16:] = extreme
    host = DecoderHost(program, {"table": x.tobytes()})
    entries = tuple((i, 0, 1) for i in range(16))
    for temperature in (0.0, 1e-6, 1.0, 1e6):
        for repetition in (1e-3, 1e3):
            row = SamplingRow(
                temperature,
                repetition_penalty=repetition,
                penalized=entries,
                top_p=0.5,
                top_logprobs=20,
            )
            step = Step(array("i", [1]), [SeqRow(0, 1)], 1, [array("i", [0])], (), (0,), [row])
            (sampled,) = host.sample(step)
            assert 0 <= sampled.token_id < 16
