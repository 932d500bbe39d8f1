"""Sorts hidden units by how strongly they fire.

A feed-forward layer computes the same whatever the order of its hidden units. Sorted,
the few units that fire hardest share blocks of 32 with each other instead of setting the
activation scale of 31 quiet ones each, and error compensation rounds them first, while
every other unit can still make up for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from runtime_py.program import Op, OpKind, Program, Rows

Floats = npt.NDArray[np.float32]


def hidden_units(program: Program) -> dict[int, int]:
    """Linear ops whose input units may be reordered: op index -> the op that makes them.

    The units are the whole output of one linear op, read by this op alone.
    """
    uses = [t for op in program.ops for t in op.tensors if t >= 0]
    found = {}
    for i, op in enumerate(program.ops):
        if op.kind is not OpKind.LINEAR or program.slots[op.out].rows is not Rows.TOKENS:
            continue
        slot = op.out
        readers = []
        for j, later in enumerate(program.ops[i + 1 :], i + 1):
            if slot in later.ins:
                readers.append(j)
            if slot in (later.out, later.out2):
                break
        if len(readers) != 1 or op.slot("residual") >= 0 or slot == program.output_slot:
            continue
        reader = program.ops[readers[0]]
        owned = all(t < 0 or uses.count(t) == 1 for t in (*op.tensors, *reader.tensors))
        if owned and _reads_whole(program, reader, slot):
            found[readers[0]] = i
    return found


def order_units(
    program: Program, weights: Mapping[str, Floats], energy: Mapping[int, Floats]
) -> dict[str, Floats]:
    """The weights of an equal program whose hidden units are sorted by falling ``energy``.

    Args:
        energy: op index (as in `hidden_units`) -> f32 [K], how strongly each unit fires.
    """
    values = dict(weights)
    for reader, writer in hidden_units(program).items():
        order = np.argsort(-energy[reader], kind="stable")
        up, down = program.ops[writer], program.ops[reader]
        for tensor, axis in (
            (up.tensor("weight"), 0),
            (up.tensor("bias"), 0),
            (down.tensor("weight"), 1),
        ):
            if tensor >= 0:
                name = program.tensors[tensor].name
                values[name] = np.ascontiguousarray(np.take(values[name], order, axis=axis))
    return values


def _reads_whole(program: Program, reader: Op, slot: int) -> bool:
    return (
        reader.kind is OpKind.LINEAR
        and reader.slot("x") == slot
        and reader.slot("residual") != slot
        and program.tensors[reader.tensor("weight")].shape[1] == program.slots[slot].width
    )
