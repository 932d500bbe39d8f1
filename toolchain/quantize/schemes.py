"""The quantization schemes: which tensor gets which format, and the accuracy each must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtime_py.errors import InvalidInput
from runtime_py.program import TensorFormat
from toolchain.sources.architectures import Task

WIDE_BITS = 16
ACTIVATION_BITS = (8, WIDE_BITS)
"""Of the inputs of linear ops with block weights."""

LEVELS: Mapping[TensorFormat, int] = {TensorFormat.I8B32: 127, TensorFormat.I4B32: 15}
"""Largest code of each block format."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """A named choice of formats.

    Attributes:
        linear: format of the weights that tokens are multiplied with.
        residual: format of those whose output is added to the residual stream. Every later
            layer inherits their errors, so few bits cost the most there.
        embedding: format of the table that tokens are looked up in.
        positions: format of the table of positions: small, and as important to the sum.
        head: format of linear weights behind the pooling. They run once per sequence, so
            speed does not ask for few bits, and nothing averages their error away.
        gate: least worst-case cosine against the f32 graph on the evaluation texts.
        golden_cosine: least cosine between any backend and the goldens.
    """

    name: str
    linear: TensorFormat
    residual: TensorFormat
    embedding: TensorFormat
    positions: TensorFormat
    head: TensorFormat
    gate: float
    golden_cosine: float

    @property
    def levels(self) -> int:
        """Largest code of `linear`; 0 for the float formats."""
        return LEVELS.get(self.linear, 0)

    def manifest(self) -> dict[str, str]:
        """The manifest's ``quantization`` object."""
        return {
            "name": self.name,
            "linear": " + ".join(dict.fromkeys((self.linear.name, self.residual.name))),
            "embedding": self.embedding.name,
            "activations": "i8 block 32" if self.levels else "f32",
        }


_F32, _F16 = TensorFormat.F32, TensorFormat.F16
_I8, _I4 = TensorFormat.I8B32, TensorFormat.I4B32
SCHEMES: Mapping[str, Scheme] = {
    s.name: s
    for s in (
        Scheme("f32", _F32, _F32, _F32, _F32, _F32, 0.99999, 0.99999),
        Scheme("f16", _F16, _F16, _F16, _F16, _F16, 0.9999, 0.99999),
        Scheme("i8", _I8, _I8, TensorFormat.I8R, _F16, _F16, 0.999, 0.9995),
        Scheme("i4", _I4, _I8, TensorFormat.I8R, _F16, _F16, 0.96, 0.999),
    )
}


@dataclass(frozen=True, slots=True)
class DecoderScheme:
    """A named choice of formats for a language model.

    Attributes:
        linear: format of the layers' weights.
        residual: of those whose output is added to the residual stream, unless the model's
            file has their codes in fewer bits.
        table: of the embedding and of the head, which are one tensor where they are tied.
        positions: of a table of learned positions.
        min_top1: least share of tokens whose most likely successor is that of the f32 graph.
        max_perplexity_rise: most that the perplexity may rise by, as a share.
    """

    name: str
    linear: TensorFormat
    residual: TensorFormat
    table: TensorFormat
    positions: TensorFormat
    min_top1: float
    max_perplexity_rise: float

    @property
    def levels(self) -> int:
        """Largest code of `linear`; 0 for the float formats."""
        return LEVELS.get(self.linear, 0)


_S8 = TensorFormat.S8B32
DECODER_SCHEMES: Mapping[str, DecoderScheme] = {
    s.name: s
    for s in (
        DecoderScheme("f32", _F32, _F32, _F32, _F32, 0.998, 0.001),
        DecoderScheme("f16", _F16, _F16, _F16, _F16, 0.99, 0.005),
        DecoderScheme("i8", _I8, _I8, _S8, _F16, 0.95, 0.01),
        DecoderScheme("i4", _I4, _I8, _S8, _F16, 0.90, 0.05),
    )
}


def find_scheme(name: str) -> Scheme:
    """The scheme called ``name``.

    Raises:
        InvalidInput: there is none.
    """
    if name not in SCHEMES:
        raise InvalidInput(f"quantization {name!r} is unknown, expected one of {list(SCHEMES)}")
    return SCHEMES[name]


def find_decoder_scheme(name: str) -> DecoderScheme:
    """The scheme called ``name`` for language models; they have the same names."""
    return DECODER_SCHEMES[find_scheme(name).name]


def check_activation_bits(bits: int | None, task: Task | None = None) -> None:
    """A model of ``task`` can have activations of ``bits`` bits; None is its default.

    Raises:
        InvalidInput: it cannot, or, without a task, no model can.
    """
    if bits is not None and bits not in ACTIVATION_BITS:
        raise InvalidInput(f"activations of {bits} bits, expected 8 or {WIDE_BITS}")
    if task == "embed" and bits == WIDE_BITS:
        raise InvalidInput(
            f"activations of {bits} bits are for language models, expected 8 for one that embeds"
        )
