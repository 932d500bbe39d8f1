"""Turns a PyTorch model into an ONNX graph that is proved to compute the same."""

from toolchain.export.export import export_onnx
from toolchain.export.types import OnnxModel

__all__ = ["OnnxModel", "export_onnx"]
