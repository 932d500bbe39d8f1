"""Each rule of `validate`, broken once: the error names the op and the rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from runtime_py.errors import ArtifactCorrupt
from runtime_py.program import OpKind, Program, Rows, Slot, Tensor, TensorFormat, validate
from runtime_py.program.ops import OP_SPECS
from tests.ops.cases import Builder, all_cases, generation_cases, normal, steps_cases
from tests.ops.cases.decoder import decoder
from tests.ops.cases.encoder import encoder

ENCODER = encoder(TensorFormat.I8B32)[0]
DECODER = decoder(TensorFormat.I8B32, bits=16)[0]
F32, F16, I8R = TensorFormat.F32, TensorFormat.F16, TensorFormat.I8R


def find(program: Program, kind: OpKind) -> int:
    return next(i for i, op in enumerate(program.ops) if op.kind is kind)


def with_op(program: Program, kind: OpKind, **fields: float) -> Program:
    """``program`` with some named fields of its first op of ``kind`` replaced."""
    at = find(program, kind)
    op, spec = program.ops[at], OP_SPECS[kind]
    for group in ("ins", "tensors", "uints", "floats"):
        names = [n.removeprefix("?") for n in getattr(spec, group)]
        values = list(getattr(op, group))
        for i, name in enumerate(names):
            if name in fields:
                values[i] = fields.pop(name)
        op = replace(op, **{group: tuple(values)})
    op = replace(op, **fields)
    return replace(program, ops=(*program.ops[:at], op, *program.ops[at + 1 :]))


def with_tensor(program: Program, kind: OpKind, name: str, **fields: object) -> Program:
    at = program.ops[find(program, kind)].tensor(name)
    tensor = replace(program.tensors[at], **fields)
    return replace(program, tensors=(*program.tensors[:at], tensor, *program.tensors[at + 1 :]))


def glu_program() -> Program:
    b = Builder(4)
    out = b.add(OpKind.GLU, b.tokens(5), gate=b.input(normal(1, 4, 10)))
    return b.program(out)


def biased() -> Program:
    return all_cases()["attention-bias"].program


def roped() -> Program:
    return all_cases()["rope-partial24"].program


E, N, L, A, P = OpKind.EMBED, OpKind.NORM, OpKind.LINEAR, OpKind.ATTENTION, OpKind.POOL

CACHE, ROWS = OpKind.CACHE, OpKind.ROWS


def columns(**fields: float) -> Program:
    """An in-place NORM of some columns, with ``fields`` changed."""
    program = generation_cases()["norm-rms-columns36-100-group64"].program
    return with_op(program, N, **fields)


def without_cache() -> Program:
    """The decoder with its CACHE ops gone."""
    return replace(DECODER, ops=tuple(op for op in DECODER.ops if op.kind is not CACHE))


def twice_cached() -> Program:
    at = find(DECODER, CACHE)
    return replace(DECODER, ops=(*DECODER.ops[: at + 1], DECODER.ops[at], *DECODER.ops[at + 1 :]))


def reading_rows() -> Program:
    """The same program but for its output: the token slot that ROWS reads."""
    return replace(DECODER, output_slot=DECODER.ops[find(DECODER, ROWS)].slot("x"))


BROKEN: dict[str, tuple[Callable[[], Program], str]] = {
    "out-of-range": (lambda: with_op(ENCODER, L, out=99), "out slot 99"),
    "out-negative": (lambda: with_op(ENCODER, L, out=-1), "out slot -1"),
    "out2-on-linear": (lambda: with_op(ENCODER, L, out2=0), "out2 slot 0"),
    "flags": (lambda: with_op(ENCODER, A, flags=2), "unknown flags 2"),
    "in-out-of-range": (lambda: with_op(ENCODER, L, x=50), "x is slot 50"),
    "in-missing": (lambda: with_op(ENCODER, L, x=-1), "x is slot -1"),
    "tensor-out-of-range": (lambda: with_op(ENCODER, L, weight=999), "weight is tensor 999"),
    "nan": (lambda: with_op(ENCODER, N, eps=float("nan")), "eps is not finite"),
    "inf": (lambda: with_op(ENCODER, A, scale=float("inf")), "scale is not finite"),
    "reads-unwritten": (lambda: with_op(ENCODER, L, x=2), "before anything writes"),
    "embed-table-shape": (
        lambda: with_tensor(ENCODER, E, "table", shape=(97, 47)),
        "table is I8R",
    ),
    "embed-positions-short": (
        lambda: with_op(ENCODER, E, position_offset=1),
        "positions is I8R",
    ),
    "embed-positions-unbounded": (
        lambda: replace(ENCODER, max_positions=0),
        "needs max_positions",
    ),
    "embed-into-seqs": (
        lambda: with_op(ENCODER, E, out=len(ENCODER.slots) - 1),
        "out must hold tokens",
    ),
    "norm-mode": (lambda: with_op(ENCODER, N, mode=2), "unknown mode 2"),
    "norm-group": (lambda: with_op(ENCODER, N, group=7), "group 7 does not divide"),
    "norm-eps": (lambda: with_op(ENCODER, N, eps=-1.0), "negative eps"),
    "norm-gamma": (lambda: with_op(ENCODER, N, gamma=0), "gamma is"),
    "norm-out2-is-out": (
        lambda: with_op(ENCODER, N, out2=ENCODER.ops[1].out),
        "out2 is out",
    ),
    "linear-activation": (lambda: with_op(ENCODER, L, activation=18), "unknown activation 18"),
    "linear-past-x": (lambda: with_op(ENCODER, L, x_offset=1), "reads past x"),
    "linear-offset-overflow": (lambda: with_op(ENCODER, L, x_offset=2**32 - 48), "reads past x"),
    "linear-i8r": (lambda: with_tensor(ENCODER, L, "weight", format=I8R), "weight format"),
    "linear-in-place": (
        lambda: with_op(
            all_cases()["linear-f32-13x64x13"].program,
            L,
            out=all_cases()["linear-f32-13x64x13"].program.ops[1].slot("x"),
        ),
        "for out of width|out overlaps x",
    ),
    "linear-bias": (lambda: with_op(ENCODER, L, bias=0), "bias is"),
    "glu-width": (
        lambda: replace(glu_program(), slots=(Slot(Rows.TOKENS, 6), *glu_program().slots[1:])),
        "twice as wide|table is",
    ),
    "glu-flag-two-inputs": (
        lambda: with_op(all_cases()["glu-silu-two-inputs-in-place"].program, OpKind.GLU, flags=1),
        "order flag",
    ),
    "rope-odd": (lambda: with_op(roped(), OpKind.ROPE, rotary_dim=5), "head sizes"),
    "rope-rotary-over-dim": (lambda: with_op(roped(), OpKind.ROPE, rotary_dim=26), "head sizes"),
    "rope-past-x": (lambda: with_op(roped(), OpKind.ROPE, offset=1), "heads reach past x"),
    "rope-inv-freq": (lambda: with_op(roped(), OpKind.ROPE, inv_freq=0), "inv_freq is"),
    "attention-heads": (lambda: with_op(ENCODER, A, kv_heads=2), "head counts"),
    "attention-zero": (lambda: with_op(ENCODER, A, head_dim=0), "head counts"),
    "attention-overflow": (lambda: with_op(ENCODER, A, heads=2**31, kv_heads=1), "head sizes"),
    "attention-past-k": (lambda: with_op(ENCODER, A, k_offset=97), "k heads reach past"),
    "attention-softcap": (lambda: with_op(ENCODER, A, softcap=-1.0), "negative softcap"),
    "attention-bias-short": (
        lambda: with_tensor(biased(), A, "bias", shape=(3, 125)),
        "bias is F32",
    ),
    "attention-bias-even": (
        lambda: with_tensor(biased(), A, "bias", shape=(3, 128)),
        "bias is F32",
    ),
    "attention-bias-unbounded": (lambda: replace(biased(), max_positions=0), "bias is F32"),
    "norm-columns-past-x": (lambda: columns(offset=37), "columns reach past x"),
    "norm-columns-overflow": (lambda: columns(offset=2**32 - 64), "columns reach past x"),
    "norm-columns-group": (lambda: columns(group=63), "group 63 does not divide 64 columns"),
    "norm-columns-elsewhere": (lambda: columns(residual=0), "columns with a residual"),
    "norm-offset-alone": (lambda: columns(columns=0, group=0, gamma=-1), "offset without columns"),
    "linear-bits": (lambda: with_op(DECODER, L, activation_bits=4), "activation_bits 4 with I8B32"),
    "linear-bits-of-floats": (
        lambda: with_tensor(DECODER, L, "weight", format=F16),
        "activation_bits 16 with F16",
    ),
    "attention-not-causal": (lambda: with_op(DECODER, A, flags=0), "cache is causal"),
    "attention-k-and-cache": (lambda: with_op(DECODER, A, k=0, v=0), "come from the cache"),
    "attention-offset-and-cache": (lambda: with_op(DECODER, A, k_offset=1), "offsets without k"),
    "attention-other-layer": (lambda: with_op(DECODER, A, cache=3), "no earlier CACHE op"),
    "attention-other-heads": (lambda: with_op(DECODER, A, kv_heads=1), "no earlier CACHE op"),
    "attention-neither": (lambda: with_op(DECODER, A, cache=0), "needs k and v"),
    "attention-no-cache": (without_cache, "no earlier CACHE op"),
    "cache-out": (lambda: with_op(DECODER, CACHE, out=0), "has no out"),
    "cache-heads": (lambda: with_op(DECODER, CACHE, kv_heads=0), "head sizes"),
    "cache-past-k": (lambda: with_op(DECODER, CACHE, k_offset=73), "k heads reach past"),
    "cache-overflow": (lambda: with_op(DECODER, CACHE, v_offset=2**32 - 24), "v heads reach past"),
    "cache-layer": (lambda: with_op(DECODER, CACHE, layer=2**32 - 1), "layer 4294967295"),
    "cache-twice": (twice_cached, "layer 0 is written twice"),
    "rows-of-rows": (
        lambda: with_op(DECODER, ROWS, x=DECODER.ops[find(DECODER, ROWS)].out),
        "before anything writes|picks token rows",
    ),
    "rows-into-tokens": (lambda: with_op(DECODER, ROWS, out=0), "picks token rows"),
    "decoder-output-tokens": (reading_rows, "holds TOKENS, expected PICKED"),
    "decoder-output-width": (
        lambda: replace(DECODER, output_slot=DECODER.ops[find(DECODER, ROWS)].out),
        "48 wide, expected the vocabulary's 101",
    ),
    "encoder-output-picked": (
        lambda: replace(
            steps_cases()["rows-all-last-none"].program,
            ops=tuple(
                op for op in steps_cases()["rows-all-last-none"].program.ops if op.kind is not CACHE
            ),
        ),
        "holds PICKED, expected TOKENS or SEQS",
    ),
    "pool-mode": (lambda: with_op(ENCODER, P, mode=6), "unknown mode 6"),
    "pool-past-out": (lambda: with_op(ENCODER, P, out_offset=1), "writes past out"),
    "normalize-eps": (lambda: with_op(ENCODER, OpKind.NORMALIZE, eps=-1.0), "negative eps"),
    "unary-activation": (
        lambda: with_op(all_cases()["unary-silu-in-place"].program, OpKind.UNARY, activation=99),
        "unknown activation 99",
    ),
    "binary-both": (
        lambda: with_op(all_cases()["binary-add-slots"].program, OpKind.BINARY, constant=0),
        "exactly one of b and constant",
    ),
    "binary-none": (
        lambda: with_op(all_cases()["binary-add-slots"].program, OpKind.BINARY, b=-1),
        "exactly one of b and constant",
    ),
    "no-ops": (lambda: replace(ENCODER, ops=()), "has 0 ops"),
    "wide-slot": (
        lambda: replace(ENCODER, slots=(Slot(Rows.TOKENS, 1 << 21), *ENCODER.slots[1:])),
        "slot 0 is",
    ),
    "empty-dimension": (
        lambda: with_tensor(ENCODER, L, "weight", shape=(0, 48)),
        "has shape",
    ),
    "same-name": (
        lambda: replace(ENCODER, tensors=(*ENCODER.tensors, ENCODER.tensors[0])),
        "listed twice",
    ),
    "part-name": (
        lambda: replace(ENCODER, tensors=(*ENCODER.tensors, Tensor("t0.scale", F16, (1,)))),
        "listed twice",
    ),
    "output": (lambda: replace(ENCODER, output_slot=99), "output slot 99"),
    "output-unwritten": (
        lambda: replace(
            ENCODER, slots=(*ENCODER.slots, Slot(Rows.SEQS, 4)), output_slot=len(ENCODER.slots)
        ),
        "no op writes the output",
    ),
    "no-vocabulary": (lambda: replace(ENCODER, vocab_size=0), "vocabulary"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_rule(rule: str) -> None:
    make, words = BROKEN[rule]
    with pytest.raises(ArtifactCorrupt, match=words) as caught:
        validate(make())
    assert "\n" not in str(caught.value)


PROGRAMS = {
    name: case.program
    for name, case in (*all_cases().items(), *generation_cases().items(), *steps_cases().items())
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_case_is_valid_as_decoded(name: str) -> None:
    program = PROGRAMS[name]
    assert validate(Program.decode(program.encode())) == program
