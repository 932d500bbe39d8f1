"""Lowers an ONNX encoder or decoder to a program of fused ops over packed tokens."""

from toolchain.lowering.decoder import lower_decoder
from toolchain.lowering.lower import LoweredModel, lower

__all__ = ["LoweredModel", "lower", "lower_decoder"]
