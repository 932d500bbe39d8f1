"""From the intermediate form to the wire program: slots, tensors, records."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from runtime_py.program import OP_SPECS, Op, OpKind, Program, Tensor, TensorFormat
from toolchain.lowering.ir import Ir, Node, Weight, as_f32
from toolchain.lowering.names import Names
from toolchain.lowering.slots import assign_slots

F32 = NDArray[np.float32]


class Emitter:
    """Collects tensors, storing equal ones once."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.weights: dict[str, F32] = {}
        self._names = Names()
        self._known: dict[tuple[tuple[int, ...], bytes], int] = {}
        self._counts: dict[str, int] = {}

    def tensor(self, weight: Weight, fallback: str) -> int:
        """Index of the tensor that holds ``weight``."""
        array = as_f32(weight.array)
        key = (array.shape, hashlib.sha256(array.data).digest())
        if key not in self._known:
            self._counts[fallback] = n = self._counts.get(fallback, -1) + 1
            stem, _, leaf = fallback.rpartition(".")
            name = self._names.unique(weight.hint, f"{stem}.{n}.{leaf}")
            self._known[key] = len(self.tensors)
            self.tensors.append(Tensor(name, TensorFormat.F32, array.shape))
            self.weights[name] = array
        return self._known[key]


def emit_program(ir: Ir, vocab_size: int, max_positions: int) -> tuple[Program, dict[str, F32]]:
    """The program of ``ir`` and its tensors by name."""
    slots, slot_of = assign_slots(ir)
    emitter = Emitter()
    widths = [s.width for s in slots]
    ops = [op for node in ir.nodes for op in _records(node, slot_of, emitter, widths)]
    program = Program(
        tuple(slots),
        tuple(emitter.tensors),
        tuple(ops),
        slot_of[ir.output],
        vocab_size,
        max_positions,
    )
    return program, emitter.weights


def _records(node: Node, slot_of: dict[int, int], emitter: Emitter, widths: list[int]) -> list[Op]:
    spec = OP_SPECS[node.kind]
    bare = [n.removeprefix("?") for n in spec.ins]
    ins = tuple(slot_of[node.ins[n]] if n in node.ins else -1 for n in bare)
    _name_bias_after_weight(node)
    tensors = tuple(
        emitter.tensor(node.tensors[n], f"{node.kind.name.lower()}.{n}")
        if n in node.tensors
        else -1
        for n in (t.removeprefix("?") for t in spec.tensors)
    )
    floats = tuple(node.floats.get(n, 0.0) for n in spec.floats)
    out2 = slot_of[node.out2] if node.out2 >= 0 else -1
    out = slot_of[node.out] if node.out >= 0 else -1
    if node.kind is not OpKind.POOL:
        uints = tuple(node.uints.get(n, 0) for n in spec.uints)
        return [Op(node.kind, out, ins, tensors, uints, floats, node.flags, out2)]
    # modes are concatenated: each writes its own columns of one slot
    return [
        Op(node.kind, out, ins, tensors, (mode, i * widths[out] // len(node.modes)), floats)
        for i, mode in enumerate(node.modes)
    ]


def _name_bias_after_weight(node: Node) -> None:
    """A weight whose own name says nothing is named after its bias."""
    weight, bias = node.tensors.get("weight"), node.tensors.get("bias")
    if weight and bias and bias.hint.endswith(".bias") and not weight.hint.endswith(".weight"):
        node.tensors["weight"] = Weight(weight.array, bias.hint.removesuffix(".bias") + ".weight")
