"""The reference executor: what every other backend must compute, in plain array code."""

from runtime_py.executors.reference.dequantize import dequantize
from runtime_py.executors.reference.executor import Observer, ReferenceExecutor

__all__ = ["Observer", "ReferenceExecutor", "dequantize"]
