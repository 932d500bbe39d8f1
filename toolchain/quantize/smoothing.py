"""Moves outlier channels from activations into weights.

G. Xiao, J. Lin, M. Seznec, H. Wu, J. Demouth, S. Han, "SmoothQuant: Accurate and
Efficient Post-Training Quantization for Large Language Models", 2023. A linear op's
input column j is divided by s[j] and the weight's column multiplied by it. A norm's output
has a few channels many times larger than the rest, which would set the scale of their
whole block of 32; weights are rounded once, with compensation, and bear it better.

The norm's output also feeds a residual in models that normalise after the block, so the
division is an op of its own (one multiply per channel, far below the cost of the linear).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from runtime_py.program import BinaryOp, Op, OpKind, Program, Rows, Slot, Tensor, TensorFormat

Floats = npt.NDArray[np.float32]

_MIGRATION = 0.75
"""How much of the channels' inequality moves to the weights; 0.5 and 1.0 measured worse."""


def smoothable(program: Program) -> dict[int, tuple[int, ...]]:
    """Groups of linear ops that read one norm's output: index of the first -> all of them.

    Groups have whole-slot inputs, so that one scaled copy of the slot serves all.
    """
    groups: dict[int, list[int]] = {}
    first_reader: dict[int, int] = {}  # slot that holds a norm's output -> its first linear
    normed: set[int] = set()
    for i, op in enumerate(program.ops):
        if op.kind is OpKind.LINEAR and op.slot("x") in normed and _whole(program, op):
            groups.setdefault(first_reader.setdefault(op.slot("x"), i), []).append(i)
        for out in (op.out, op.out2):
            first_reader.pop(out, None)
            normed.discard(out)
            if op.kind is OpKind.NORM and out >= 0:
                normed.add(out)
    return {first: tuple(ops) for first, ops in groups.items()}


def smooth(
    program: Program, weights: Mapping[str, Floats], channel_max: Mapping[int, Floats]
) -> tuple[Program, dict[str, Floats]]:
    """An equal program whose quantized linear ops see inputs without outlier channels.

    Args:
        channel_max: for the first op of each group of `smoothable`, the largest magnitude
            of every input channel over the calibration texts, f32 [K].

    Returns:
        The program, with a slot for scaled inputs and a multiplication before each group,
        and its weights.
    """
    groups = smoothable(program)
    slots, tensors, values = list(program.slots), list(program.tensors), dict(weights)
    busy_until: dict[int, int] = {}  # slot of scaled inputs -> last op that reads it
    reads: dict[int, int] = {}
    before: dict[int, Op] = {}
    for first, members in groups.items():
        weight_ids = [program.ops[i].tensor("weight") for i in members]
        names = [program.tensors[t].name for t in weight_ids]
        if first not in channel_max or not _private(program, weight_ids, members):
            continue
        scale = _scales(channel_max[first], [values[n] for n in names])
        for name in names:
            values[name] = values[name] * scale
        width = len(scale)
        free = (s for s, last in busy_until.items() if slots[s].width == width and last < first)
        scaled = next(free, len(slots))
        if scaled == len(slots):
            slots.append(Slot(Rows.TOKENS, width))
        busy_until[scaled] = members[-1]
        name = f"{names[0]}.input_scale"
        values[name] = (1 / scale).astype(np.float32)
        tensors.append(Tensor(name, TensorFormat.F32, (width,)))
        source = program.ops[first].slot("x")
        before[first] = Op(
            OpKind.BINARY,
            scaled,
            (source, -1),
            (len(tensors) - 1,),
            (BinaryOp.MUL,),
        )
        reads.update(dict.fromkeys(members, scaled))
    ops: list[Op] = []
    for i, op in enumerate(program.ops):
        if i in before:
            ops.append(before[i])
        if i in reads:
            op = replace(op, ins=(reads[i], *op.ins[1:]))
        ops.append(op)
    smoothed = replace(program, slots=tuple(slots), tensors=tuple(tensors), ops=tuple(ops))
    return smoothed, values


def _whole(program: Program, op: Op) -> bool:
    slot, weight = program.slots[op.slot("x")], program.tensors[op.tensor("weight")]
    return slot.rows is Rows.TOKENS and weight.shape[1] == slot.width


def _private(program: Program, weight_ids: Sequence[int], members: Sequence[int]) -> bool:
    """No other op uses these weights (a tied weight cannot be scaled for one of its uses)."""
    return not any(
        t in op.tensors for i, op in enumerate(program.ops) if i not in members for t in weight_ids
    )


def _scales(channel_max: Floats, weights: Sequence[Floats]) -> Floats:
    """f32 [K] with geometric mean one; channels that never fire keep a scale of one."""
    weight_max = np.max([np.abs(w).max(axis=0) for w in weights], axis=0)
    live = (channel_max > 0) & (weight_max > 0)
    log = np.zeros(len(channel_max))
    log[live] = _MIGRATION * np.log(channel_max[live]) - (1 - _MIGRATION) * np.log(weight_max[live])
    log[live] -= log[live].mean() if live.any() else 0
    return np.exp(log).astype(np.float32)
