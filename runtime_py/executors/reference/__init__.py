"""The reference executor: what every other backend must compute, in plain array code."""

from runtime_py.executors.reference.dequantize import dequantize
from runtime_py.executors.reference.executor import (
    DECODER_LIMITS,
    DEFAULT_LIMITS,
    Observer,
    ReferenceExecutor,
)
from runtime_py.executors.reference.sampling import sample, uniform

__all__ = [
    "DECODER_LIMITS",
    "DEFAULT_LIMITS",
    "Observer",
    "ReferenceExecutor",
    "dequantize",
    "sample",
    "uniform",
]
