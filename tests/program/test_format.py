"""program.bin: exact round trips; any bytes give a program or a typed error."""

from __future__ import annotations

import struct
from array import array
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.errors import ArtifactCorrupt, ArtifactError, ArtifactUnsupported
from runtime_py.executors.base import ExecutorLimits
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import MemoryWeights, row_bytes
from runtime_py.program import Op, OpKind, Program, validate
from tests.ops.cases import all_cases, make_step
from tests.program.strategies import damaged, programs, valid_bytes

HEADER = 64


@given(programs())
@settings(max_examples=200)
def test_round_trip(program: Program) -> None:
    data = program.encode()
    assert Program.decode(data) == program
    assert Program.decode(data).encode() == data


def test_absent_trailing_fields_read_as_their_defaults() -> None:
    op = Op(OpKind.NORM, 0, (1,))
    assert (op.slot("residual"), op.tensor("gamma"), op.uint("group"), op.float("eps")) == (
        -1,
        -1,
        0,
        0.0,
    )
    with pytest.raises(KeyError):
        op.uint("heads")


@given(st.binary(max_size=400))
@settings(max_examples=200)
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError):
        Program.decode(data)


@pytest.mark.parametrize("data", valid_bytes())
def test_every_truncation_is_corrupt(data: bytes) -> None:
    for size in range(0, len(data), max(1, len(data) // 200)):
        with pytest.raises(ArtifactCorrupt):
            Program.decode(data[:size])


@given(damaged())
@settings(max_examples=600)
def test_damaged_bytes_are_refused_or_still_run(data: bytes) -> None:
    """Whatever passes validation cannot make a backend reach outside its slots."""
    try:
        program = validate(Program.decode(data))
    except ArtifactError:
        return
    sizes = [int(np.prod(t.shape, dtype=object)) for t in program.tensors]
    if sum(sizes) + 16 * sum(s.width for s in program.slots) > 1 << 20:
        return  # valid, and too large for a test
    if any(op.kind is OpKind.ATTENTION and op.uint("heads") > 64 for op in program.ops):
        return
    parts = {
        name: bytes(size * t.shape[0])
        for t in program.tensors
        for name, size in zip(t.parts, row_bytes(t), strict=True)
    }
    decodes = program.is_decoder
    executor = ReferenceExecutor.from_weights(
        program,
        MemoryWeights(program, parts),
        limits=ExecutorLimits(16, 4, 1, 1, kv_blocks=2 * decodes, max_wanted=2 * decodes),
    )
    longest = min(program.max_positions or 3, 3)
    step = make_step([1, longest], ids=[0] * (1 + longest))
    if decodes:
        tables = [array("i", [0]), array("i", [1])]
        step = replace(step, block_tables=tables, wanted=[0, longest])
    result = executor.run(step)
    assert result.output.shape[1] == program.output.width


def patched(data: bytes, at: int, fmt: str, value: int) -> bytes:
    out = bytearray(data)
    struct.pack_into("<" + fmt, out, at, value)
    return bytes(out)


def test_header_faults_are_named() -> None:
    data = all_cases()["norm-layer-seqs"].program.encode()
    slots, tensors, _, names = struct.unpack_from("<4I", data, 12)
    first_tensor = HEADER + 8 * slots
    first_op = first_tensor + 32 * tensors
    for damage, error, words in (
        (b"PK\3\4" + data[4:], ArtifactCorrupt, "starts with"),
        (patched(data, 4, "H", 2), ArtifactUnsupported, "version 2"),
        (patched(data, 6, "H", 1), ArtifactCorrupt, "starts with"),
        (patched(data, 8, "I", len(data) + 1), ArtifactCorrupt, "its header says"),
        (patched(data, 12, "I", slots + 1), ArtifactCorrupt, "its tables need"),
        (patched(data, 24, "I", names + 1), ArtifactCorrupt, "its tables need"),
        (patched(data, 12, "I", 0xFFFFFFFF), ArtifactCorrupt, "its tables need"),
        (patched(data, HEADER, "B", 3), ArtifactCorrupt, "unknown row kind 3"),
        (patched(data, HEADER + 1, "B", 1), ArtifactCorrupt, "slot"),
        (patched(data, first_tensor, "I", 1 << 20), ArtifactCorrupt, "outside the name table"),
        (patched(data, first_tensor + 6, "B", 9), ArtifactUnsupported, "format 9"),
        (patched(data, first_tensor + 7, "B", 5), ArtifactCorrupt, "5 dimensions"),
        (patched(data, first_tensor + 24, "I", 1), ArtifactCorrupt, "dimensions"),
        (patched(data, first_op, "H", 99), ArtifactUnsupported, "kind 99"),
        (patched(data, first_op + 108, "I", 1), ArtifactCorrupt, "unknown fields"),
        (patched(data, len(data) - 1, "B", 0xFF), ArtifactCorrupt, "not UTF-8"),
    ):
        with pytest.raises(error, match=words):
            Program.decode(damage)
