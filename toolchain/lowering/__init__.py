"""Lowers an ONNX encoder to a program of fused ops over packed tokens."""

from toolchain.lowering.lower import LoweredModel, lower

__all__ = ["LoweredModel", "lower"]
