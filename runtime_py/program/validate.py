"""Checks that a decoded program means something: shapes agree, nothing is out of range.

A program that passes cannot make a correct backend read or write outside its
slots and tensors. The C executor repeats these checks; they are cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from runtime_py.errors import ArtifactCorrupt
from runtime_py.program.format import Op, Program, Slot, Tensor
from runtime_py.program.ops import (
    FLAG_CAUSAL,
    OP_SPECS,
    Activation,
    BinaryOp,
    NormMode,
    OpKind,
    PoolMode,
    Rows,
    TensorFormat,
)

MAX_WIDTH = 1 << 20
MAX_DIM = 1 << 27
MAX_SLOTS, MAX_TENSORS, MAX_OPS = 4096, 65536, 65536


class _Op:
    """An op with its slots and tensors resolved; reports what is wrong by name."""

    def __init__(self, program: Program, index: int) -> None:
        self.program, self.index = program, index
        self.op: Op = program.ops[index]
        self.spec = OP_SPECS[self.op.kind]

    def fail(self, what: str) -> ArtifactCorrupt:
        return ArtifactCorrupt(f"program.bin: op {self.index} ({self.op.kind.name}): {what}")

    def check(self, condition: bool, what: str) -> None:
        if not condition:
            raise self.fail(what)

    def slot(self, name: str) -> Slot:
        return self.program.slots[self.op.slot(name)]

    def has(self, name: str) -> bool:
        if any(n.removeprefix("?") == name for n in self.spec.ins):
            return self.op.slot(name) >= 0
        return self.op.tensor(name) >= 0

    def tensor(self, name: str) -> Tensor:
        return self.program.tensors[self.op.tensor(name)]

    def vector(self, name: str, *shapes: tuple[int, ...]) -> None:
        """Optional f32 tensor ``name`` has one of ``shapes``."""
        if self.has(name):
            t = self.tensor(name)
            self.check(
                t.format is TensorFormat.F32 and t.shape in shapes,
                f"{name} is {t.format.name} {t.shape}, expected F32 {shapes[0]}",
            )

    @property
    def out(self) -> Slot:
        return self.program.slots[self.op.out]

    def same_rows(self, *names: str) -> None:
        for n in names:
            if self.has(n):
                self.check(self.slot(n).rows is self.out.rows, f"{n} and out differ in rows")

    def choice(self, name: str, enum: type[Activation | NormMode | PoolMode | BinaryOp]) -> None:
        value = self.op.uint(name)
        self.check(value in {int(e) for e in enum}, f"unknown {name} {value}")

    def references(self) -> None:
        """Every index is in range, required fields are set, flags and floats are sane."""
        op, spec, p = self.op, self.spec, self.program
        if op.kind is OpKind.CACHE:
            self.check(op.out == -1, "has no out")
        else:
            self.check(0 <= op.out < len(p.slots), f"out slot {op.out} of {len(p.slots)}")
        self.check(
            -1 <= op.out2 < len(p.slots) and (op.out2 == -1 or op.kind is OpKind.NORM),
            f"out2 slot {op.out2} of {len(p.slots)}",
        )
        self.check(op.flags & ~spec.flags == 0, f"unknown flags {op.flags}")
        for kind, names, values, size in (
            ("slot", spec.ins, op.ins, len(p.slots)),
            ("tensor", spec.tensors, op.tensors, len(p.tensors)),
        ):
            for i, n in enumerate(names):
                v = values[i] if i < len(values) else -1
                low = -1 if n.startswith("?") else 0
                self.check(low <= v < size, f"{n.removeprefix('?')} is {kind} {v} of {size}")
        for n in spec.floats:
            self.check(math.isfinite(op.float(n)), f"{n} is not finite")


def _embed(c: _Op) -> None:
    table = c.tensor("table")
    c.check(c.out.rows is Rows.TOKENS, "out must hold tokens")
    c.check(
        table.shape == (c.program.vocab_size, c.out.width),
        f"table is {table.format.name} {table.shape}, expected "
        f"[{c.program.vocab_size}, {c.out.width}]",
    )
    if c.has("positions"):
        t = c.tensor("positions")
        need = c.op.uint("position_offset") + c.program.max_positions
        c.check(c.program.max_positions > 0, "a position table needs max_positions")
        c.check(
            t.format in (TensorFormat.F32, TensorFormat.F16, TensorFormat.I8R)
            and len(t.shape) == 2
            and t.shape[0] >= need
            and t.shape[1] == c.out.width,
            f"positions is {t.format.name} {t.shape}, expected [>= {need}, {c.out.width}]",
        )
    c.vector("constant", (c.out.width,))


def _norm(c: _Op) -> None:
    x = c.slot("x")
    width = c.op.uint("columns") or x.width
    group = c.op.uint("group") or width
    c.same_rows("x", "residual")
    c.choice("mode", NormMode)
    c.check(x.width == c.out.width, "x and out differ in width")
    c.check(not c.has("residual") or c.slot("residual").width == x.width, "residual width")
    c.check(width % group == 0, f"group {group} does not divide {width} columns")
    columns, offset = c.op.uint("columns"), c.op.uint("offset")
    if columns:
        c.check(c.op.out == c.op.slot("x"), "norms columns of a row in place only")
        c.check(offset + columns <= x.width, "columns reach past x")
        c.check(not c.has("residual") and c.op.out2 < 0, "columns with a residual or out2")
    else:
        c.check(offset == 0, "an offset without columns")
    c.vector("gamma", (group,))
    c.vector("beta", (group,))
    c.check(c.op.float("eps") >= 0, "negative eps")
    if c.op.out2 >= 0:
        c.check(c.program.slots[c.op.out2] == x, "out2 differs from x in rows or width")
        c.check(c.op.out2 != c.op.out, "out2 is out")


def _linear(c: _Op) -> None:
    w, x = c.tensor("weight"), c.slot("x")
    c.same_rows("x", "residual")
    c.choice("activation", Activation)
    c.check(w.format is not TensorFormat.I8R and len(w.shape) == 2, "weight format or shape")
    c.check(
        c.op.uint("x_offset") + w.shape[1] <= x.width,
        f"weight {w.shape} reads past x of width {x.width}",
    )
    c.check(w.shape[0] == c.out.width, f"weight {w.shape} for out of width {c.out.width}")
    c.check(not c.has("residual") or c.slot("residual").width == c.out.width, "residual width")
    c.check(c.op.out != c.op.slot("x"), "out overlaps x")
    plain = w.format in (TensorFormat.F32, TensorFormat.F16)
    c.check(
        c.op.uint("activation_bits") in ((0,) if plain else (0, 8, 16)),
        f"activation_bits {c.op.uint('activation_bits')} with {w.format.name} weights",
    )
    c.vector("bias", (w.shape[0],))


def _glu(c: _Op) -> None:
    c.same_rows("gate", "up")
    c.choice("activation", Activation)
    if c.has("up"):
        widths = (c.slot("gate").width, c.slot("up").width)
        c.check(widths == (c.out.width,) * 2, f"gate, up {widths}, out {c.out.width}")
        c.check(not c.op.flags, "order flag with two inputs")
    else:
        c.check(c.slot("gate").width == 2 * c.out.width, "gate is not twice as wide as out")
        c.check(c.op.out != c.op.slot("gate"), "out overlaps gate")


def _rope(c: _Op) -> None:
    heads, dim, rot = (c.op.uint(n) for n in ("heads", "head_dim", "rotary_dim"))
    x = c.slot("x")
    c.check(x == c.out and x.rows is Rows.TOKENS, "x and out must be equal token slots")
    c.check(heads > 0 and dim > 0 and 0 < rot <= dim and rot % 2 == 0, "head sizes")
    c.check(c.op.uint("offset") + heads * dim <= x.width, "heads reach past x")
    c.vector("inv_freq", (rot // 2,))


def _attention(c: _Op) -> None:
    heads, kv, dim = (c.op.uint(n) for n in ("heads", "kv_heads", "head_dim"))
    c.check(heads > 0 and kv > 0 and dim > 0 and heads % kv == 0, "head counts")
    c.check(heads <= 4096 and dim <= 4096, "head sizes")
    c.same_rows("q", "k", "v")
    cached = c.op.uint("cache") > 0
    if cached:
        c.check(not c.has("k") and not c.has("v"), "k and v come from the cache")
        c.check(bool(c.op.flags & FLAG_CAUSAL), "attention over the cache is causal")
        c.check(not c.op.uint("k_offset") and not c.op.uint("v_offset"), "offsets without k, v")
        wanted = (c.op.uint("cache") - 1, kv, dim)
        c.check(
            any(
                o.kind is OpKind.CACHE
                and (o.uint("layer"), o.uint("kv_heads"), o.uint("head_dim")) == wanted
                for o in c.program.ops[: c.index]
            ),
            f"no earlier CACHE op writes layer {wanted[0]} with {kv} heads of {dim}",
        )
    else:
        c.check(c.has("k") and c.has("v"), "needs k and v, or a cache layer")
    c.check(c.out.rows is Rows.TOKENS and c.out.width == heads * dim, "out is not heads * head_dim")
    for n, count in (("q", heads), ("k", kv), ("v", kv)):
        if not c.has(n):
            continue
        c.check(
            c.op.uint(n + "_offset") + count * dim <= c.slot(n).width,
            f"{n} heads reach past their slot",
        )
        c.check(c.op.out != c.op.slot(n), f"out overlaps {n}")
    if c.has("bias"):
        t = c.tensor("bias")
        c.check(
            t.format is TensorFormat.F32
            and len(t.shape) == 2
            and t.shape[0] == heads
            and t.shape[1] % 2 == 1
            and t.shape[1] >= 2 * c.program.max_positions - 1 > 0,
            f"bias is {t.format.name} {t.shape}, expected F32 "
            f"[{heads}, >= 2 * {c.program.max_positions} - 1]",
        )
    c.check(c.op.float("softcap") >= 0, "negative softcap")


def _pool(c: _Op) -> None:
    c.choice("mode", PoolMode)
    x = c.slot("x")
    c.check(x.rows is Rows.TOKENS and c.out.rows is Rows.SEQS, "pools tokens into sequences")
    c.check(c.op.uint("out_offset") + x.width <= c.out.width, "writes past out")


def _same_shape(c: _Op, name: str) -> None:
    c.check(c.slot(name) == c.out, f"{name} and out differ")


def _normalize(c: _Op) -> None:
    _same_shape(c, "x")
    c.check(c.op.float("eps") >= 0, "negative eps")


def _unary(c: _Op) -> None:
    _same_shape(c, "x")
    c.choice("activation", Activation)


def _binary(c: _Op) -> None:
    _same_shape(c, "a")
    c.choice("op", BinaryOp)
    c.check(c.has("b") != c.has("constant"), "needs exactly one of b and constant")
    if c.has("b"):
        _same_shape(c, "b")
        c.check(not c.op.flags, "swap flag without a constant")
    c.vector("constant", (c.out.width,), (1,))


def _cache(c: _Op) -> None:
    layer, kv, dim = (c.op.uint(n) for n in ("layer", "kv_heads", "head_dim"))
    c.check(0 < kv <= 4096 and 0 < dim <= 4096, "head sizes")
    c.check(layer < MAX_OPS, f"layer {layer}")
    for n in ("k", "v"):
        c.check(c.slot(n).rows is Rows.TOKENS, f"{n} must hold tokens")
        c.check(
            c.op.uint(n + "_offset") + kv * dim <= c.slot(n).width,
            f"{n} heads reach past their slot",
        )
    c.check(
        all(
            o.kind is not OpKind.CACHE or o.uint("layer") != layer for o in c.program.ops[: c.index]
        ),
        f"layer {layer} is written twice",
    )


def _rows(c: _Op) -> None:
    x = c.slot("x")
    c.check(
        x.rows is Rows.TOKENS and c.out.rows is Rows.PICKED and x.width == c.out.width,
        "picks token rows into a slot of the same width",
    )


_RULES: dict[OpKind, Callable[[_Op], None]] = {
    OpKind.EMBED: _embed,
    OpKind.NORM: _norm,
    OpKind.LINEAR: _linear,
    OpKind.GLU: _glu,
    OpKind.ROPE: _rope,
    OpKind.ATTENTION: _attention,
    OpKind.POOL: _pool,
    OpKind.NORMALIZE: _normalize,
    OpKind.UNARY: _unary,
    OpKind.BINARY: _binary,
    OpKind.CACHE: _cache,
    OpKind.ROWS: _rows,
}


def validate(program: Program) -> Program:
    """Return ``program`` if every rule holds.

    Raises:
        ArtifactCorrupt: names the op and the rule it breaks.
    """
    p = program
    for name, count, limit in (
        ("slots", len(p.slots), MAX_SLOTS),
        ("tensors", len(p.tensors), MAX_TENSORS),
        ("ops", len(p.ops), MAX_OPS),
    ):
        if not 0 < count <= limit:
            raise ArtifactCorrupt(f"program.bin has {count} {name}, expected 1 to {limit}")
    for i, s in enumerate(p.slots):
        if not 0 < s.width <= MAX_WIDTH:
            raise ArtifactCorrupt(f"program.bin: slot {i} is {s.width} wide")
    names: set[str] = set()
    for t in p.tensors:
        block = t.format not in (TensorFormat.F32, TensorFormat.F16)
        if any(not 0 < d <= MAX_DIM for d in t.shape) or (block and len(t.shape) != 2):
            raise ArtifactCorrupt(f"program.bin: tensor {t.name!r} has shape {t.shape}")
        if names.intersection(t.parts):
            raise ArtifactCorrupt(f"program.bin: tensor {t.name!r} is listed twice")
        names.update(t.parts)
    if not 0 <= p.output_slot < len(p.slots):
        raise ArtifactCorrupt(f"program.bin: output slot {p.output_slot} of {len(p.slots)}")
    if not 0 < p.vocab_size <= MAX_DIM or not 0 <= p.max_positions <= MAX_DIM:
        raise ArtifactCorrupt("program.bin: vocabulary or position limit out of range")
    written: set[int] = set()
    for i in range(len(p.ops)):
        op = _Op(p, i)
        op.references()
        for slot in op.op.ins:
            op.check(slot < 0 or slot in written, f"reads slot {slot} before anything writes it")
        _RULES[op.op.kind](op)
        written.update((op.op.out, op.op.out2))
    if p.is_decoder != (p.output.rows is Rows.PICKED):
        raise ArtifactCorrupt(
            f"program.bin: the output slot holds {p.output.rows.name}, expected "
            + ("PICKED for a program with a cache" if p.is_decoder else "TOKENS or SEQS")
        )
    if p.is_decoder and p.output.width != p.vocab_size:
        raise ArtifactCorrupt(
            f"program.bin: the output slot is {p.output.width} wide, "
            f"expected the vocabulary's {p.vocab_size}"
        )
    if p.output_slot not in written:
        raise ArtifactCorrupt("program.bin: no op writes the output slot")
    return program
