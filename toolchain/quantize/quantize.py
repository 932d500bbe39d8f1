"""Quantizes a lowered model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from runtime_py.errors import InvalidInput, NonFinite
from runtime_py.executors.reference.dequantize import quantize_activations
from runtime_py.program import (
    BLOCK,
    Activation,
    Op,
    OpKind,
    Program,
    Rows,
    Tensor,
    TensorFormat,
    validate,
)
from toolchain.quantize.centring import centre_tables
from toolchain.quantize.formats import MAX_F16, Floats, Parts, encode
from toolchain.quantize.gptq import compensated_codes, corrected, nearest_codes
from toolchain.quantize.ordering import hidden_units, order_units
from toolchain.quantize.schemes import LEVELS, Scheme
from toolchain.quantize.smoothing import smooth, smoothable
from toolchain.quantize.stream import Stream, batched

Doubles = npt.NDArray[np.float64]
Progress = Callable[[float], None]
"""Called with the share of the work that is done, 0 to 1."""

_BLOCK_FORMATS = (TensorFormat.I8B32, TensorFormat.I4B32)
_COARSE = 15
"""Up to this many levels, earlier layers' errors are large enough to be worth predicting."""
_F16_HEADROOM = MAX_F16 / 4


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
    _check(program, weights)
    report = progress or (lambda share: None)
    if not scheme.levels:
        formatted = _with_formats(program, scheme, weights)
        parts: Parts = {}
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
    return _quantize_blocks(formatted, values, scheme.levels <= _COARSE, batches, report)


def _quantize_blocks(
    program: Program,
    weights: Mapping[str, Floats],
    coarse: bool,
    batches: Sequence[Sequence[Sequence[int]]],
    report: Progress,
) -> QuantizedModel:
    """Quantize layer by layer, each on the outputs of the layers quantized before it."""
    parts: Parts = {}
    tensors: list[Floats] = []
    for tensor in program.tensors:
        weight = weights[tensor.name]
        if tensor.format in _BLOCK_FORMATS:
            tensors.append(weight)  # until its op's turn comes
            continue
        stored = encode(tensor, weight)
        parts.update(stored)
        tensors.append(_decode(tensor, stored))
    stream = Stream(program, tensors, batches, quantize_activations=True)
    exact = Stream(
        program, [weights[t.name] for t in program.tensors], batches, quantize_activations=False
    )
    for i, op in enumerate(program.ops):
        linear = op.kind is OpKind.LINEAR
        tensor = program.tensors[op.tensor("weight") if linear else 0]
        if linear and tensor.format in _BLOCK_FORMATS and tensor.name not in parts:
            weight, levels = weights[tensor.name], LEVELS[tensor.format]
            if batches:
                moments, drift = _statistics(stream, exact, op, weight)
                if coarse:
                    weight = corrected(weight, moments, drift)
                codes = compensated_codes(weight, moments, levels)
            else:
                codes = nearest_codes(weight, levels)
            parts.update(codes.parts(tensor))
            stream.set_tensor(op.tensor("weight"), codes.decode(tensor.shape[1]))
        stream.run(op, i)
        exact.run(op, i)
        report((i + 1) / len(program.ops))
    return QuantizedModel(validate(program), parts)


def _statistics(stream: Stream, exact: Stream, op: Op, weight: Floats) -> tuple[Doubles, Doubles]:
    """Second moments of the op's inputs, and how far its outputs have drifted.

    Returns:
        ``moments`` f64 [K, K], the weighted sum of ``outer(x, x)`` over the inputs x as the
        kernels see them, and ``drift`` f64 [N, K], that of ``outer(y - weight @ x, x)``
        where y is what the op would have to give for its result to be the exact one.
    """
    rows, columns = weight.shape
    start = op.uint("x_offset")
    residual = op.slot("residual") >= 0 and op.uint("activation") == Activation.NONE
    moments, drift = np.zeros((columns, columns)), np.zeros((rows, columns))
    for state, true, share in zip(stream.states, exact.states, stream.row_weights, strict=True):
        part = slice(start, start + columns)
        x = quantize_activations(np, state.slots[op.slot("x")][:, part])
        missing = (true.slots[op.slot("x")][:, part] - x) @ weight.T
        if residual:
            at = op.slot("residual")
            missing += true.slots[at] - state.slots[at]
        weighted = x * share[:, None]
        moments += weighted.T @ x
        drift += missing.T @ weighted
    return moments, drift


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
        if formats[i] is TensorFormat.F16 and np.abs(weights[t.name]).max() > _F16_HEADROOM:
            formats[i] = TensorFormat.F32
        if formats[i] in _BLOCK_FORMATS and t.shape[1] < BLOCK:
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


def _decode(tensor: Tensor, stored: Parts) -> Floats:
    data = stored[tensor.name].astype(np.float32)
    if tensor.format is TensorFormat.I8R:
        return data * stored[f"{tensor.name}.scale"].astype(np.float32)[:, None]
    return data


def _check(program: Program, weights: Mapping[str, Floats]) -> None:
    for t in program.tensors:
        if t.format is not TensorFormat.F32:
            raise InvalidInput(f"tensor {t.name!r} is {t.format.name}, expected F32 to quantize")
        if t.name not in weights or weights[t.name].shape != t.shape:
            found = weights[t.name].shape if t.name in weights else "missing"
            raise InvalidInput(f"weight {t.name!r} is {found}, expected shape {t.shape}")
        if not np.isfinite(weights[t.name]).all():
            raise NonFinite(f"weight {t.name!r} holds NaN or infinity; the model's file is damaged")
