"""Where a model comes from: a directory, an installed package, the hub, an ONNX or GGUF file."""

from toolchain.sources.resolve import resolve
from toolchain.sources.source import ModelSource

__all__ = ["ModelSource", "resolve"]
