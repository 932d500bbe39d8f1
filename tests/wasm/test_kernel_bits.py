"""The quantized linear kernels against exact integer arithmetic, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime_py.program import Program, TensorFormat
from tests.wasm import models
from tests.wasm.driver import OK, Host

I8, I4, S8 = TensorFormat.I8B32, TensorFormat.I4B32, TensorFormat.S8B32
F = np.float32


def run(variant: str, program: Program, parts: dict[str, bytes], rows: int) -> np.ndarray:
    host = Host(variant)
    assert host.create(program.encode(), tokens=rows, seqs=1) == OK
    host.load(program, parts)
    host.fill([rows], range(rows))
    assert host.call("v_run", 0) == OK
    return host.output(rows, program.output.width)


def expected(
    x: np.ndarray, codes: np.ndarray, scale: np.ndarray, low: np.ndarray | None, bits: int = 8
) -> np.ndarray:
    """docs/design.md, 6.1 and 7.1, in scalar order: x [T, Kp], codes [N, Kp], scale, low [N, B]."""
    tokens, blocks = x.shape[0], x.shape[1] // 32
    most = {8: 127, 16: 32639}[bits]
    acc = np.zeros((tokens, codes.shape[0]), F)
    for b in range(blocks):
        part = x[:, 32 * b : 32 * b + 32]
        sa = np.abs(part).max(axis=1) / F(most)
        inverse = np.divide(F(1), sa, out=np.zeros_like(sa), where=sa > 0)
        a = np.clip(np.rint(part * inverse[:, None]), -most, most).astype(np.int64)
        dot = a @ codes[:, 32 * b : 32 * b + 32].astype(np.int64).T
        acc = acc + dot.astype(F) * (scale[:, b].astype(F)[None, :] * sa[:, None])
        if low is not None:
            total = sa * a.sum(axis=1).astype(F)
            acc = acc + low[:, b].astype(F)[None, :] * total[:, None]
    return acc


def pack(format: TensorFormat, codes: np.ndarray) -> bytes:
    if format is not I4:
        return codes.astype(np.int8 if format is S8 else np.uint8).tobytes()
    blocks = codes.reshape(codes.shape[0], -1, 2, 16).astype(np.uint8)
    return (blocks[:, :, 0] | blocks[:, :, 1] << 4).tobytes()


def check(
    format: TensorFormat, x: np.ndarray, codes: np.ndarray, seed: int = 0, bits: int = 8
) -> None:
    rng = np.random.default_rng(seed)
    tokens, k = x.shape
    n, padded = codes.shape
    scale = rng.uniform(0, 0.02, (n, padded // 32)).astype(np.float16)
    low = None if format is S8 else rng.uniform(-1, 1, (n, padded // 32)).astype(np.float16)
    program = models.linear(format, k, n, tokens, bits)
    parts = {
        "table": x.astype("<f4").tobytes(),
        "w": pack(format, codes),
        "w.scale": scale.tobytes(),
    }
    if low is not None:
        parts["w.min"] = low.tobytes()
    wide = np.zeros((tokens, padded), F)
    wide[:, :k] = x
    wanted = expected(wide, codes, scale, low, bits)
    for variant in ("simd", "relaxed"):
        got = run(variant, program, parts, tokens)
        np.testing.assert_array_equal(got.view("<u4"), wanted.view("<u4"), err_msg=variant)


CODES = {I8: (0, 127), I4: (0, 15), S8: (-128, 127)}
FORMATS = list(CODES)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("format", FORMATS)
def test_E14_extreme_codes_give_the_same_bits_in_both_builds(
    format: TensorFormat, bits: int
) -> None:
    bottom, top = CODES[format]
    rng = np.random.default_rng(1)
    codes = rng.choice([bottom, bottom + 1, top - 1, top], (24, 128))
    codes[:3] = top
    codes[3] = bottom
    x = rng.choice(np.array([-1, 1], F), (9, 128))
    x[0], x[1] = 1, -1
    x[2] = rng.choice(np.array([-127, -126, -65, 64, 126, 127], F), 128)
    x[3, :64] = 0
    # of 16-bit codes, those whose low byte is -128, -127 or 127
    x[4] = rng.choice(np.array([32639, 128, -128, 127, 32512 - 128, -32639], F), 128)
    # low bytes of -128 against the top weight: the least that sums of pairs have to hold
    x[5], x[5, ::32] = 128, 32639
    for rows in (9, 1, 2, 3):
        check(format, x[9 - rows :], codes, bits=bits)
        check(format, x[4 : 4 + rows], codes, bits=bits)


@settings(max_examples=60)
@given(
    st.sampled_from(FORMATS),
    st.sampled_from([8, 16]),
    st.integers(1, 9),
    st.integers(1, 100),
    st.integers(1, 150),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e6]),
)
def test_random_shapes(
    format: TensorFormat, bits: int, tokens: int, k: int, n: int, seed: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((tokens, k)) * size).astype(F)
    padded = -(-k // 32) * 32
    bottom, top = CODES[format]
    check(format, x, rng.integers(bottom, top + 1, (n, padded)), seed, bits)


@pytest.mark.parametrize(
    ("format", "bits"),
    [*((f, b) for f in FORMATS for b in (8, 16)), (TensorFormat.F16, 0), (TensorFormat.F32, 0)],
)
@pytest.mark.parametrize("variant", ["simd", "relaxed"])
def test_a_row_has_the_same_bits_in_every_tile(
    variant: str, format: TensorFormat, bits: int
) -> None:
    """19 panels of columns: 4 runs of 4 and 3 single ones, or 2 of 9 and one."""
    program = models.linear(format, 96, 150, 40, bits)
    parts = models.random_parts(program)
    together = run(variant, program, parts, 39)
    host = Host(variant)
    assert host.create(program.encode()) == OK
    host.load(program, parts)
    runs = (
        (0, 1),
        (5, 2),
        (6, 3),
        (0, 4),
        (20, 5),
        (3, 7),
        (10, 8),
        (36, 3),
        (38, 1),
        (7, 32),
        (2, 13),
    )
    for first, count in runs:
        host.fill([count], range(first, first + count))
        assert host.call("v_run", 0) == OK
        got = host.output(count, 150)
        assert got.tobytes() == together[first : first + count].tobytes()


LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@settings(max_examples=25)
@given(LENGTHS, st.integers(0, 49), st.randoms(use_true_random=False))
def test_a_sequence_has_the_same_bits_in_every_batch(
    lengths: list[int], seed: int, random: object
) -> None:
    program = models.everything()
    texts = [[(seed + 7 * s + 3 * i) % 50 for i in range(n)] for s, n in enumerate(lengths)]
    order = list(range(len(texts)))
    random.shuffle(order)  # type: ignore[attr-defined]
    outputs = {}
    for variant in ("simd", "relaxed"):
        host = Host(variant)
        assert host.create(program.encode(), tokens=200, seqs=5) == OK
        host.load(program, models.random_parts(program))
        alone = []
        for text in texts:
            host.fill([len(text)], text)
            assert host.call("v_run", 0) == OK
            alone.append(host.output(1, 40).tobytes())
        host.fill([len(texts[i]) for i in order], (t for i in order for t in texts[i]))
        assert host.call("v_run", 0) == OK
        together = host.output(len(texts), 40)
        assert [together[j].tobytes() for j in range(len(order))] == [alone[i] for i in order]
        outputs[variant] = alone
