"""Calls out of order and arguments out of range are refused; nothing traps."""

from __future__ import annotations

import numpy as np
import pytest

from runtime_py.executors.weights import row_bytes
from runtime_py.program import TensorFormat
from tests.wasm import models
from tests.wasm.driver import (
    BAD_CALL,
    BAD_STEP,
    HEADER,
    INCOMPLETE,
    NO_MEMORY,
    OK,
    PAGE,
    SEQS,
    TOKENS,
    Host,
)

PROGRAM = models.everything()
PARTS = models.random_parts(PROGRAM)
COUNTS, TOKEN, ROWS, POSITION = 1, 2, 3, 4


def loaded(**limits: int) -> Host:
    host = Host()
    assert host.create(PROGRAM.encode(), **limits) == OK
    host.load(PROGRAM, PARTS)
    return host


def test_facts() -> None:
    for variant, bit in (("simd", 0), ("relaxed", 1)):
        host = Host(variant)
        assert host.call("v_abi_version") == 2
        assert host.call("v_features") == bit
        assert host.call("v_memory_bytes", 2) == host.pages * PAGE
        assert host.call("v_memory_bytes", 9) == 0
        assert host.call("v_detail", 7) == 0


def test_calls_before_create() -> None:
    host = Host()
    assert host.call("v_write_rows", 0, 0, 8, 64, 64, 64) == BAD_CALL
    assert host.call("v_seal") == BAD_CALL
    assert host.call("v_run", 0) == BAD_CALL
    assert host.call("v_workspace", 0, HEADER) == 0


def test_calls_after_seal() -> None:
    host = loaded()
    assert host.call("v_alloc", 8) == 0
    assert host.call("v_write_rows", 0, 0, 8, 64, 64, 64) == BAD_CALL
    assert host.call("v_seal") == BAD_CALL
    assert host.call("v_create", 64, 64, 1, 1, 1, 1) == BAD_CALL
    assert host.call("v_run", 1) == BAD_CALL
    assert host.call("v_workspace", 0, 5) == 0
    assert host.call("v_workspace", 1, HEADER) == 0


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        (0, 0),
        (0, 0xFFFFFFF0),
        (1, 0xFFFFFFFF),
        *((i, v) for i in range(2, 6) for v in (0, 1 << 31)),
    ],
)
def test_create_refuses_arguments(argument: int, value: int) -> None:
    host = Host()
    data = PROGRAM.encode()
    args = [host.put(data), len(data), 64, 8, 1, 1]
    args[argument] = value
    assert host.call("v_create", *args) == BAD_CALL
    assert host.create(data) == OK  # a refused call leaves the module usable


def test_a_refused_program_leaves_room_for_another() -> None:
    host = Host()
    assert host.create(b"VLRX" + bytes(96)) == -1
    assert host.create(PROGRAM.encode()) == OK
    host.load(PROGRAM, PARTS)


@pytest.mark.parametrize(
    ("args", "detail"),
    [
        ((99, 0, 8), 1),  # no such tensor
        ((0, 4, 8), 2),  # not a multiple of 8
        ((0, 56, 8), 2),  # past the end
        ((0, 0, 0), 3),
        ((0, 0, 12), 3),  # a partial group before the last
        ((0, 0, 51), 3),
        ((0, 48, 0xFFFFFFFF), 3),
    ],
)
def test_write_rows_refuses_ranges(args: tuple[int, int, int], detail: int) -> None:
    host = Host()
    assert host.create(PROGRAM.encode()) == OK
    buffer = host.put(bytes(8192))
    assert host.call("v_write_rows", *args, buffer, buffer, buffer) == BAD_CALL
    assert host.detail()[0] == detail


def test_write_rows_refuses_pointers_and_repeats() -> None:
    host = Host()
    assert host.create(PROGRAM.encode()) == OK
    buffer, end = host.put(bytes(8192)), host.pages * PAGE
    for bad in (0, end - 8, 0xFFFFFFF8):
        assert host.call("v_write_rows", 0, 0, 8, bad, buffer, buffer) == BAD_CALL
        assert host.call("v_write_rows", 4, 0, 8, buffer, bad, buffer) == BAD_CALL
        assert host.call("v_write_rows", 4, 0, 8, buffer, buffer, bad) == BAD_CALL
    assert host.call("v_write_rows", 0, 8, 8, buffer, buffer, 0) == OK
    assert host.call("v_write_rows", 0, 0, 16, buffer, buffer, 0) == BAD_CALL
    assert host.call("v_write_rows", 0, 0, 8, buffer, buffer, 0) == OK
    assert host.call("v_seal") == INCOMPLETE
    assert host.detail() == (0, 5)  # tensor 0 lacks 5 of its 7 groups of 8 rows


@pytest.mark.parametrize(("tensor", "code"), [(4, 128), (0, 0x80)])
def test_E14_codes_outside_the_formats_range_are_refused(tensor: int, code: int) -> None:
    host = Host()
    assert host.create(PROGRAM.encode()) == OK
    data = bytearray(8 * row_bytes(PROGRAM.tensors[tensor])[0])
    data[-1] = code
    buffer = host.put(bytes(4096))
    assert (
        host.call("v_write_rows", tensor, 0, 8, host.put(bytes(data)), buffer, buffer) == BAD_CALL
    )
    assert host.call("v_write_rows", tensor, 0, 8, buffer, buffer, buffer) == OK


def test_rows_in_any_order_and_size_pack_alike() -> None:
    outputs = []
    for max_bytes in (1, 1 << 20):
        host = Host()
        assert host.create(PROGRAM.encode()) == OK
        host.load(PROGRAM, PARTS, max_bytes)
        host.fill([5, 3], range(8))
        assert host.call("v_run", 0) == OK
        outputs.append(host.output(2, 40).tobytes())
    assert outputs[0] == outputs[1]


def test_step_faults_name_the_culprit() -> None:
    host = loaded(tokens=64, seqs=4)
    host.fill([3, 5], range(8))
    good = {p: host.read(host.call("v_workspace", 0, p), n) for p, n in ((0, 8), (1, 32), (2, 32))}

    def faulty(part: int, word: int, value: int, fault: int, index: int) -> None:
        for p, data in good.items():
            host.write(host.call("v_workspace", 0, p), data)
        at = host.call("v_workspace", 0, part) + 4 * word
        host.write(at, np.array([value], "<i8").astype("<u4").tobytes())
        assert host.call("v_run", 0) == BAD_STEP
        assert host.detail() == (fault, index)
        header = np.frombuffer(host.read(host.call("v_workspace", 0, HEADER), 20), "<i4")
        assert header[2:].tolist() == [BAD_STEP, fault, np.int64(index).astype("<i4")]

    for tokens in (0, 65, 1 << 31):
        faulty(HEADER, 0, tokens, COUNTS, tokens)
    for seqs in (0, 5):
        faulty(HEADER, 1, seqs, COUNTS, seqs)
    faulty(HEADER, 0, 7, ROWS, 1)  # the second row passes the end
    faulty(HEADER, 0, 9, ROWS, 2)  # a token without a row
    for value in (-1, 50):
        faulty(TOKENS, 4, value, TOKEN, 4)
    faulty(SEQS, 4, 4, ROWS, 1)
    faulty(SEQS, 1, 0, ROWS, 0)
    faulty(SEQS, 5, 0xFFFFFFFF, ROWS, 1)
    faulty(SEQS, 7, 5, ROWS, 1)  # pool_skip leaves nothing
    faulty(SEQS, 2, 62, POSITION, 0)
    faulty(SEQS, 6, 0xFFFFFFFF, POSITION, 1)
    host.fill([3, 5], range(8))
    assert host.call("v_run", 0) == OK


def test_out_of_memory_says_how_much() -> None:
    host = Host(max_pages=64)
    assert host.create(PROGRAM.encode(), tokens=1 << 20) == NO_MEMORY
    low, high = host.detail()
    assert low + (high << 32) > 1 << 20
    assert host.create(PROGRAM.encode()) == OK  # smaller limits fit
    assert host.call("v_alloc", 64 << 20) == 0
    assert host.detail() == (64 << 20, 0)


def test_M3_addresses_above_2_gib() -> None:
    host = Host(max_pages=40000)
    assert host.call("v_alloc", (1 << 31) + 12345)
    assert host.create(PROGRAM.encode()) == OK
    host.load(PROGRAM, PARTS)
    assert host.call("v_workspace", 0, TOKENS) > 1 << 31
    host.fill([5, 3], range(8))
    assert host.call("v_run", 0) == OK
    low = loaded()
    low.fill([5, 3], range(8))
    assert low.call("v_run", 0) == OK
    assert host.output(2, 40).tobytes() == low.output(2, 40).tobytes()


def test_memory_does_not_grow_during_steps() -> None:
    host = loaded()
    before = host.pages
    for length in (1, 33, 64):
        host.fill([length], [1] * length)
        assert host.call("v_run", 0) == OK
    assert host.pages == before


@pytest.mark.parametrize("format", [f for f in TensorFormat if f is not TensorFormat.I8R])
def test_M3_weights_take_no_more_than_the_artifact(format: TensorFormat) -> None:
    program = models.linear(format, 384, 1024, 8)
    stored = sum(sum(row_bytes(t)) * t.shape[0] for t in program.tensors)
    host = Host()
    assert host.create(program.encode()) == OK
    assert host.call("v_memory_bytes", 0) <= 1.01 * stored


def test_statuses_mark_only_the_sequence_that_is_not_finite() -> None:
    program = models.linear(TensorFormat.I8B32, 40, 12, 8)
    parts = models.random_parts(program)
    table = np.frombuffer(parts["table"], "<f4").reshape(8, 40).copy()
    table[3, 39], table[5, 0] = np.nan, np.inf
    host = Host("relaxed")
    assert host.create(program.encode()) == OK
    host.load(program, {**parts, "table": table.tobytes()})
    host.fill([2, 2, 1, 2], [0, 1, 2, 3, 4, 5, 6])
    assert host.call("v_run", 0) == OK
    assert list(host.statuses(4)) == [0, 1, 0, 1]
    assert np.isfinite(host.output(7, 12)).all(axis=1).tolist() == [1, 1, 1, 0, 1, 0, 1]
