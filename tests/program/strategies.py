"""Hypothesis strategies for programs and for damage to their bytes."""

from __future__ import annotations

from hypothesis import strategies as st

from runtime_py.program import OP_SPECS, Op, OpKind, Program, Rows, Slot, Tensor, TensorFormat
from tests.ops.cases import all_cases, steps_cases
from tests.ops.cases.decoder import decoder
from tests.ops.cases.encoder import encoder

U32 = st.integers(0, 2**32 - 1)
INDEX = st.integers(-1, 2**31 - 1)


@st.composite
def ops(draw: st.DrawFn) -> Op:
    """An op with every field of its kind set to anything the record can hold."""
    kind = draw(st.sampled_from(OpKind))
    spec = OP_SPECS[kind]

    def fill(names: tuple[str, ...], values: st.SearchStrategy) -> tuple:
        return tuple(draw(values) for _ in names)

    return Op(
        kind,
        draw(INDEX),
        fill(spec.ins, INDEX),
        fill(spec.tensors, INDEX),
        fill(spec.uints, U32),
        fill(spec.floats, st.floats(width=32, allow_nan=False)),
        draw(st.integers(0, 2**16 - 1)),
        draw(INDEX),
    )


def programs() -> st.SearchStrategy[Program]:
    """Programs that the format can hold, most of them nonsense."""
    slots = st.builds(Slot, st.sampled_from(Rows), U32)
    tensors = st.builds(
        Tensor,
        st.text(min_size=1, max_size=20).filter(lambda s: s.isprintable()),
        st.sampled_from(TensorFormat),
        st.lists(U32, min_size=1, max_size=4).map(tuple),
    )
    return st.builds(
        Program,
        st.lists(slots, max_size=4).map(tuple),
        st.lists(tensors, max_size=4).map(tuple),
        st.lists(ops(), max_size=4).map(tuple),
        U32,
        U32,
        U32,
    )


def valid_bytes() -> list[bytes]:
    """The bytes of one valid program of every kind of op, of a whole encoder and decoder."""
    chosen: dict[tuple[OpKind, ...], bytes] = {}
    for case in (*all_cases().values(), *steps_cases().values()):
        chosen.setdefault(tuple(op.kind for op in case.program.ops), case.program.encode())
    whole = encoder(TensorFormat.I8B32)[0], decoder(TensorFormat.S8B32, bits=16)[0]
    return [*chosen.values(), *(program.encode() for program in whole)]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid program with some fields overwritten, or cut short, or longer."""
    data = bytearray(draw(st.sampled_from(_VALID)))
    edge = st.sampled_from([0, 1, 2, 3, 5, 8, 31, 33, 255, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data) // 4 - 1)) * 4
        match draw(st.integers(0, 2)):
            case 0:
                data[at : at + 4] = draw(edge).to_bytes(4, "little")
            case 1:
                data[at + draw(st.integers(0, 3))] = draw(st.integers(0, 255))
            case _:
                data[at] ^= 1 << draw(st.integers(0, 7))
    cut = draw(st.sampled_from([None, None, None, 0, 1]))
    if cut == 0:
        return bytes(data[: draw(st.integers(0, len(data)))])
    return bytes(data + draw(st.binary(max_size=8))) if cut else bytes(data)


_VALID = valid_bytes()
