"""Mutations of a valid program: refused, or run without a trap; never a third thing."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.errors import ArtifactError
from runtime_py.program import KV_BLOCK, Program, TensorFormat, validate
from tests.wasm import models
from tests.wasm.decoder import BLOCKS, F16, GENERATION, TABLES, WANTED
from tests.wasm.driver import BAD_PROGRAM, NO_MEMORY, OK, UNSUPPORTED, Host

FORMATS = (TensorFormat.I8B32, TensorFormat.I4B32, TensorFormat.F32)
VALID = [
    *(models.everything(format).encode() for format in FORMATS),
    models.decoder(TensorFormat.I4B32, bits=16, window=9).encode(),
    models.decoder(TensorFormat.S8B32).encode(),
]
NAMES = 64  # bytes at the end that only name tensors: hosts read them, the module does not

INTERESTING = (0, 1, 2, 3, 7, 8, 31, 32, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x20000000)


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) // 4 - 1)) * 4
        old = int.from_bytes(data[at : at + 4], "little")
        value = draw(
            st.one_of(
                st.sampled_from(INTERESTING),
                st.integers(-3, 3).map(lambda d, old=old: (old + d) & 0xFFFFFFFF),
                st.integers(0, 31).map(lambda b, old=old: old ^ 1 << b),
                st.integers(0, 0xFFFFFFFF),
            )
        )
        data[at : at + 4] = value.to_bytes(4, "little")
    return bytes(data)


def python_accepts(data: bytes) -> bool:
    try:
        validate(Program.decode(data))
    except ArtifactError:
        return False
    return True


def run_if_accepted(host: Host, data: bytes) -> None:
    """An accepted program must run, whatever its weights are."""
    program = Program.decode(data)
    if program.is_decoder and host.call("v_cache", 8, F16, 4, 0) == NO_MEMORY:
        return
    host.load(program, models.random_parts(program))
    longest = program.max_positions or 40
    lengths = [min(n, longest) for n in (1, 37, 5)]
    host.fill(lengths, (i % program.vocab_size for i in range(sum(lengths))))
    if program.is_decoder:
        blocks = [-(-n // KV_BLOCK) for n in lengths]
        first = np.cumsum([0, *blocks[:-1]])
        for part, words in ((TABLES, first), (BLOCKS, np.arange(sum(blocks))), (WANTED, [0, 2])):
            host.write(host.call("v_workspace", 0, part), np.array(words, "<u4").tobytes())
        host.write(host.call("v_workspace", 0, 0) + GENERATION, np.uint32(2).tobytes())
    assert host.call("v_run", 0) == OK
    assert set(host.statuses(3)) <= {0, 1}


@settings(max_examples=600)
@given(mutations())
def test_mutated_programs_are_refused_or_run(data: bytes) -> None:
    host = Host("simd", max_pages=1024)
    status = host.create(data, tokens=64, seqs=3)
    assert status in (OK, BAD_PROGRAM, UNSUPPORTED, NO_MEMORY)
    # The module must not accept what Python refuses, nor the reverse; names are Python's.
    if python_accepts(data):
        assert status in (OK, NO_MEMORY), host.detail()
        if status == OK:
            run_if_accepted(host, data)
    elif status == OK:
        assert "'" in _reason(data), _reason(data)  # a tensor's name is at fault


def _reason(data: bytes) -> str:
    try:
        validate(Program.decode(data))
    except ArtifactError as error:
        text = str(error)
        named = "listed twice" in text or "UTF-8" in text
        return f"'{text}'" if named else text
    return "accepted"


@settings(max_examples=150)
@given(st.binary(max_size=512), st.sampled_from(VALID), st.integers(0, 200))
def test_arbitrary_bytes_and_truncations(tail: bytes, valid: bytes, keep: int) -> None:
    host = Host("simd", max_pages=1024)
    data = valid[:keep] + tail
    if data:
        assert host.create(data) in (BAD_PROGRAM, UNSUPPORTED)


def test_every_truncation_is_refused() -> None:
    host = Host("simd")
    at = host.put(VALID[0])
    for size in range(len(VALID[0])):
        assert host.call("v_create", at, size, 64, 8, 1, 1) in (BAD_PROGRAM, -4)


def test_every_rule_number_has_a_meaning() -> None:
    """Rules reported for single-field damage lie in the documented ranges."""
    seen = set()
    for at in range(0, len(VALID[0]) - NAMES, 4):
        for value in (0xFFFFFFFF, 0x7FFFFFFF, 0, 1):
            data = bytearray(VALID[0])
            data[at : at + 4] = value.to_bytes(4, "little")
            host = Host("simd", max_pages=1024)
            if host.create(bytes(data)) == BAD_PROGRAM:
                seen.add(host.detail()[1])
    assert seen <= {*range(1, 8), *range(100, 108)}
    assert {1, 3, 5, 6, 7, 100, 101, 104, 105, 106} <= seen
