"""Quantizes a lowered model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from runtime_py.errors import InvalidInput, NonFinite
from runtime_py.program import (
    BLOCK,
    OpKind,
    Program,
    Rows,
    Tensor,
    TensorFormat,
    validate,
)
from toolchain.quantize.centring import centre_tables
from toolchain.quantize.formats import MAX_F16, Floats, Parts, encode
from toolchain.quantize.layers import Progress, quantize_layers
from toolchain.quantize.ordering import hidden_units, order_units
from toolchain.quantize.schemes import LEVELS, Scheme
from toolchain.quantize.smoothing import smooth, smoothable
from toolchain.quantize.stream import Stream, batched

COARSE = 15
"""Up to this many levels, earlier layers' errors are large enough to be worth predicting."""
F16_HEADROOM = MAX_F16 / 4


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A program and the stored parts of its tensors (entry name -> array)."""

    program: Program
    parts: Parts


def quantize(
    program: Program,
    weights: Mapping[str, Floats],
    scheme: Scheme,
    calibration: Sequence[Sequence[int]] = (),
    progress: Progress | None = None,
) -> QuantizedModel:
    """Give every tensor its format, and choose the codes.

    Args:
        program: with F32 tensors only, as the lowering makes it.
        weights: tensor name -> f32 array of the tensor's shape.
        calibration: token ids of texts. The block formats choose their codes with them;
            without any they round to nearest.

    Raises:
        InvalidInput: ``weights`` do not fit the program.
        NonFinite: a weight is not finite.
    """
    check_weights(program, weights)
    report = progress or (lambda share: None)
    if not scheme.levels:
        formatted = _with_formats(program, scheme, weights)
        parts = Parts()
        for i, tensor in enumerate(formatted.tensors):
            parts.update(encode(tensor, weights[tensor.name]))
            report((i + 1) / len(formatted.tensors))
        return QuantizedModel(validate(formatted), parts)
    program, values = centre_tables(program, weights)
    batches = batched(calibration)
    if batches:
        peaks, energies = _input_statistics(program, values, batches)
        values = order_units(program, values, energies)
        program, values = smooth(program, values, peaks)
    formatted = _with_formats(program, scheme, values)
    coarse = scheme.levels <= COARSE
    parts = quantize_layers(formatted, values, batches, report, coarse=coarse)
    return QuantizedModel(validate(formatted), parts)


def _input_statistics(
    program: Program, weights: Mapping[str, Floats], batches: Sequence[Sequence[Sequence[int]]]
) -> tuple[dict[int, Floats], dict[int, Floats]]:
    """What the inputs of linear ops look like in the float program, f32 [K] per op index.

    Returns:
        The largest magnitude of each channel, for the groups of `smoothable`, and the
        weighted sum of squares of each, for `hidden_units`.
    """
    groups, hidden = smoothable(program), hidden_units(program)
    stream = Stream(
        program, [weights[t.name] for t in program.tensors], batches, quantize_activations=False
    )
    peaks, energies = {}, {}
    for i, op in enumerate(program.ops):
        if i in groups:
            peaks[i] = np.max([np.abs(x).max(axis=0) for x in stream.inputs(op)], axis=0)
        if i in hidden:
            energies[i] = np.sum(
                [
                    np.einsum("tk,tk,t->k", x, x, share)
                    for x, share in zip(stream.inputs(op), stream.row_weights, strict=True)
                ],
                axis=0,
            )
        stream.run(op, i)
    return peaks, energies


def _with_formats(program: Program, scheme: Scheme, weights: Mapping[str, Floats]) -> Program:
    """The program with the formats that ``scheme`` gives its tensors."""
    formats = [TensorFormat.F32] * len(program.tensors)
    for op in program.ops:
        if op.kind is OpKind.EMBED:
            formats[op.tensor("table")] = scheme.embedding
            if op.tensor("positions") >= 0:
                formats[op.tensor("positions")] = scheme.positions
        elif op.kind is OpKind.LINEAR:
            tokens = program.slots[op.out].rows is Rows.TOKENS
            inner = scheme.residual if op.slot("residual") >= 0 else scheme.linear
            formats[op.tensor("weight")] = inner if tokens else scheme.head
    _settle_shared(program, formats)
    for i, t in enumerate(program.tensors):
        if formats[i] is TensorFormat.F16 and np.abs(weights[t.name]).max() > F16_HEADROOM:
            formats[i] = TensorFormat.F32
        if formats[i] in LEVELS and t.shape[1] < BLOCK:
            formats[i] = TensorFormat.F32  # padding would make it larger, not smaller
    tensors = tuple(
        Tensor(t.name, f, t.shape) for t, f in zip(program.tensors, formats, strict=True)
    )
    return replace(program, tensors=tensors)


def _settle_shared(program: Program, formats: list[TensorFormat]) -> None:
    """A tensor that ops of different kinds use keeps a format that all of them read."""
    kinds: dict[int, set[OpKind]] = {}
    for op in program.ops:
        for t in op.tensors:
            if t >= 0:
                kinds.setdefault(t, set()).add(op.kind)
    for t, used in kinds.items():
        if len(used) > 1 and formats[t] is not TensorFormat.F32:
            readable = used <= {OpKind.EMBED, OpKind.LINEAR}
            formats[t] = TensorFormat.F16 if readable else TensorFormat.F32


def check_weights(program: Program, weights: Mapping[str, Floats]) -> None:
    for t in program.tensors:
        if t.format is not TensorFormat.F32:
            raise InvalidInput(f"tensor {t.name!r} is {t.format.name}, expected F32 to quantize")
        if t.name not in weights or weights[t.name].shape != t.shape:
            found = weights[t.name].shape if t.name in weights else "missing"
            raise InvalidInput(f"weight {t.name!r} is {found}, expected shape {t.shape}")
        if not np.isfinite(weights[t.name]).all():
            raise NonFinite(f"weight {t.name!r} holds NaN or infinity; the model's file is damaged")
