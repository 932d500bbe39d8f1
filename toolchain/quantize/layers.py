"""Quantizes linear ops one after the other, each on the outputs of those before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from runtime_py.executors.reference.dequantize import quantize_activations
from runtime_py.program import Activation, Op, OpKind, Program
from toolchain.quantize.formats import Floats, Parts, decode, encode
from toolchain.quantize.gptq import compensated_codes, corrected, nearest_codes
from toolchain.quantize.schemes import LEVELS
from toolchain.quantize.stream import Stream

Doubles = npt.NDArray[np.float64]
Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1."""


def quantize_layers(
    program: Program,
    weights: Mapping[str, Floats],
    batches: Sequence[Sequence[Sequence[int]]],
    report: Progress,
    *,
    coarse: bool,
    stored: Parts | None = None,
) -> Parts:
    """The parts of every tensor of ``program``, which has its final formats.

    Args:
        weights: tensor name -> f32 array.
        batches: token ids of calibration texts, in packed steps; without any, codes are
            those of plain rounding.
        coarse: few levels; earlier layers' errors are large enough to be worth predicting.
        stored: parts that are already known, and stay as they are.
    """
    parts: Parts = dict(stored or {})
    tensors: list[Floats] = []
    todo: set[int] = set()
    for i, tensor in enumerate(program.tensors):
        weight = weights[tensor.name]
        if tensor.name not in parts and tensor.format in LEVELS:
            tensors.append(weight)  # until its op's turn comes
            todo.add(i)
            continue
        if tensor.name not in parts:
            parts.update(encode(tensor, weight))
        tensors.append(decode(tensor, parts) if batches else weight)
    if not batches:
        for i in sorted(todo):
            tensor = program.tensors[i]
            codes = nearest_codes(weights[tensor.name], LEVELS[tensor.format])
            parts.update(codes.parts(tensor))
        return parts
    stream = Stream(program, tensors, batches, quantize_activations=True)
    exact = Stream(
        program, [weights[t.name] for t in program.tensors], batches, quantize_activations=False
    )
    for i, op in enumerate(program.ops):
        if not todo:
            break
        at = op.tensor("weight") if op.kind is OpKind.LINEAR else -1
        if at in todo:
            tensor = program.tensors[at]
            weight, levels = weights[tensor.name], LEVELS[tensor.format]
            moments, drift = _statistics(stream, exact, op, weight)
            if coarse:
                weight = corrected(weight, moments, drift)
            codes = compensated_codes(weight, moments, levels)
            parts.update(codes.parts(tensor))
            stream.set_tensor(at, codes.decode(tensor.shape[1]))
            todo.remove(at)
        stream.run(op, i)
        exact.run(op, i)
        report((i + 1) / len(program.ops))
    return parts


def _statistics(stream: Stream, exact: Stream, op: Op, weight: Floats) -> tuple[Doubles, Doubles]:
    """Second moments of the op's inputs, and how far its outputs have drifted.

    Returns:
        ``moments`` f64 [K, K], the weighted sum of ``outer(x, x)`` over the inputs x as the
        kernels see them, and ``drift`` f64 [N, K], that of ``outer(y - weight @ x, x)``
        where y is what the op would have to give for its result to be the exact one.
    """
    rows, columns = weight.shape
    start, bits = op.uint("x_offset"), op.uint("activation_bits") or 8
    residual = op.slot("residual") >= 0 and op.uint("activation") == Activation.NONE
    moments, drift = np.zeros((columns, columns)), np.zeros((rows, columns))
    for state, true, share in zip(stream.states, exact.states, stream.row_weights, strict=True):
        part = slice(start, start + columns)
        x = quantize_activations(np, state.slots[op.slot("x")][:, part], bits)
        missing = (true.slots[op.slot("x")][:, part] - x) @ weight.T
        if residual:
            at = op.slot("residual")
            missing += true.slots[at] - state.slots[at]
        weighted = x * share[:, None]
        moments += weighted.T @ x
        drift += missing.T @ weighted
    return moments, drift
