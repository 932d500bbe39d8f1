"""Quantizes a lowered language model: codes from the model's own file where they fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np

from runtime_py.program import BLOCK, Op, OpKind, Program, Tensor, TensorFormat, validate
from toolchain.quantize.formats import Floats, Parts, decode
from toolchain.quantize.layers import Progress, quantize_layers
from toolchain.quantize.quantize import COARSE, F16_HEADROOM, QuantizedModel, check_weights
from toolchain.quantize.schemes import WIDE_BITS, DecoderScheme
from toolchain.quantize.stream import batched
from toolchain.sources.gguf.exact import BlockRows
from toolchain.sources.gguf.lookup import Found

_EDGE_LAYERS, _LAYERS_PER_EDGE = 2, 8
"""With 8-bit activations so many layers at either end take 16 bits: errors of the first
are amplified by all others, and those of the last go straight into the logits."""
_BLOCK_FORMATS = (TensorFormat.I4B32, TensorFormat.I8B32, TensorFormat.S8B32)
_CODES_SHARE = 0.15
"""Of the work, looking up codes."""
_LOOKUP_ROWS = 8192

Origin = Literal["imported", "calibrated", "rounded", "float"]


class CodeSource(Protocol):
    """Codes of weight rows, as a quantized file holds them (see `BlockImport`)."""

    def lookup_rows(self, weights: Floats) -> Found | None: ...


@dataclass(frozen=True, slots=True)
class TensorLoss:
    """What storing one matrix changed.

    Attributes:
        origin: "imported" codes are those of the model's file; "calibrated" ones make up
            for their errors on calibration texts; "rounded" and "float" are the nearest.
        relative_error: RMS difference from the f32 weight over its RMS value.
        max_error: largest absolute difference.
    """

    name: str
    format: TensorFormat
    origin: Origin
    relative_error: float
    max_error: float


@dataclass(frozen=True, slots=True)
class QuantizedDecoder:
    """A quantized language model and what each of its matrices lost."""

    model: QuantizedModel
    losses: tuple[TensorLoss, ...]


def quantize_decoder(
    program: Program,
    weights: Mapping[str, Floats],
    scheme: DecoderScheme,
    *,
    activation_bits: int = 16,
    codes: CodeSource | None = None,
    calibration: Callable[[], Sequence[Sequence[int]]] | None = None,
    progress: Progress | None = None,
) -> QuantizedDecoder:
    """Give every tensor its format, and choose or find the codes.

    Args:
        program: a decoder with F32 tensors only, as the lowering makes it.
        weights: tensor name -> f32 array of the tensor's shape.
        activation_bits: of the inputs of linear ops with block weights: 16, or 8 in all but
            the outermost layers.
        codes: of a model that came quantized; what it holds is not rounded again, if the
            scheme has room for it.
        calibration: gives token ids of texts, and is called if codes have to be chosen;
            without it they are the nearest.

    Raises:
        InvalidInput: ``weights`` do not fit the program.
        NonFinite: a weight is not finite.
    """
    check_weights(program, weights)
    report = progress or (lambda share: None)
    formats = _formats(program, scheme, weights)
    stored: Parts = {}
    origins: dict[str, Origin] = {}
    for i, tensor in enumerate(program.tensors):
        found = None
        if codes is not None and formats[i] in _BLOCK_FORMATS:
            found = _imported(codes, weights[tensor.name], formats[i], scheme)
        if found is not None:
            formats[i] = TensorFormat[found.format]
            stored.update(_parts(Tensor(tensor.name, formats[i], tensor.shape), found))
            origins[tensor.name] = "imported"
        report(_CODES_SHARE * (i + 1) / len(program.tensors))
    formatted = _with_formats(program, formats, activation_bits)
    missing = [t for t in formatted.tensors if t.format in _CHOSEN and t.name not in stored]
    parts = quantize_layers(
        formatted,
        weights,
        batched(calibration()) if missing and calibration is not None else (),
        lambda share: report(_CODES_SHARE + (1 - _CODES_SHARE) * share),
        coarse=scheme.levels <= COARSE,
        stored=stored,
    )
    for tensor in formatted.tensors:
        chosen: Origin = "rounded" if calibration is None else "calibrated"
        other: Origin = "rounded" if tensor.format is TensorFormat.S8B32 else "float"
        origins.setdefault(tensor.name, chosen if tensor.format in _CHOSEN else other)
    losses = tuple(
        _loss(t, weights[t.name], parts, origins[t.name])
        for t in formatted.tensors
        if t.format is not TensorFormat.F32
    )
    return QuantizedDecoder(QuantizedModel(validate(formatted), parts), losses)


_CHOSEN = (TensorFormat.I4B32, TensorFormat.I8B32)
"""Formats whose codes calibration chooses."""


def _formats(
    program: Program, scheme: DecoderScheme, weights: Mapping[str, Floats]
) -> list[TensorFormat]:
    """What ``scheme`` gives every tensor."""
    formats = [TensorFormat.F32] * len(program.tensors)
    linears = [op for op in program.ops if op.kind is OpKind.LINEAR]
    for op in linears[:-1]:
        residual = op.slot("residual") >= 0
        formats[op.tensor("weight")] = scheme.residual if residual else scheme.linear
    formats[linears[-1].tensor("weight")] = scheme.table  # the head
    for op in program.ops:
        if op.kind is OpKind.EMBED:
            formats[op.tensor("table")] = scheme.table
            if op.tensor("positions") >= 0:
                formats[op.tensor("positions")] = scheme.positions
    for i, t in enumerate(program.tensors):
        if formats[i] is TensorFormat.F16 and np.abs(weights[t.name]).max() > F16_HEADROOM:
            formats[i] = TensorFormat.F32
        if formats[i] in _BLOCK_FORMATS and t.shape[1] < BLOCK:
            formats[i] = TensorFormat.F32  # padding would make it larger, not smaller
    return formats


def _imported(
    codes: CodeSource, weight: Floats, target: TensorFormat, scheme: DecoderScheme
) -> BlockRows | None:
    """The file's codes of ``weight``; None where it has none, or in too many bits."""
    pieces: list[BlockRows] = []
    for at in range(0, len(weight), _LOOKUP_ROWS):
        found = codes.lookup_rows(weight[at : at + _LOOKUP_ROWS])
        if found is None:
            return None
        pieces.append(found.rows)
    widened = scheme.linear is TensorFormat.I8B32 and target is TensorFormat.I8B32
    if widened or len({p.format for p in pieces}) > 1:
        pieces = [p.widened() for p in pieces]
    first = pieces[0]
    too_wide = target is TensorFormat.I4B32 and first.format != "I4B32"
    if too_wide or any(p.format != first.format for p in pieces):
        return None
    lows = [p.min for p in pieces if p.min is not None]
    return BlockRows(
        first.format,
        np.concatenate([p.codes for p in pieces]),
        np.concatenate([p.scale for p in pieces]),
        np.concatenate(lows) if lows else None,
    )


def _parts(tensor: Tensor, rows: BlockRows) -> Parts:
    stored = (rows.codes, rows.scale, rows.min)
    return dict(zip(tensor.parts, (s for s in stored if s is not None), strict=True))


def _with_formats(program: Program, formats: Sequence[TensorFormat], bits: int) -> Program:
    """``program`` with these formats, and the activations' bits where they matter."""
    tensors = tuple(
        Tensor(t.name, f, t.shape) for t, f in zip(program.tensors, formats, strict=True)
    )
    linears = [i for i, op in enumerate(program.ops) if op.kind is OpKind.LINEAR]
    layers = sum(op.kind is OpKind.CACHE for op in program.ops)
    edge = min(_EDGE_LAYERS, layers // _LAYERS_PER_EDGE) * (len(linears) - 1) // max(layers, 1)
    wide = {*linears[:edge], *linears[-edge - 1 : -1]}

    def with_bits(index: int, op: Op) -> Op:
        if op.kind is not OpKind.LINEAR or formats[op.tensor("weight")] not in _BLOCK_FORMATS:
            return op
        own = max(bits, WIDE_BITS if index in wide else 0)
        return replace(op, uints=(op.uint("activation"), op.uint("x_offset"), own))

    ops = tuple(with_bits(i, op) for i, op in enumerate(program.ops))
    return replace(program, tensors=tensors, ops=ops)


def _loss(tensor: Tensor, weight: Floats, parts: Parts, origin: Origin) -> TensorLoss:
    difference = decode(tensor, parts) - weight
    energy = float(np.vdot(weight, weight))
    relative = (float(np.vdot(difference, difference)) / energy) ** 0.5 if energy else 0.0
    largest = float(np.abs(difference).max(initial=0.0))
    return TensorLoss(tensor.name, tensor.format, origin, relative, largest)
