"""Turns f32 weights into the stored formats and chooses their codes with calibration texts."""

from toolchain.quantize.quantize import QuantizedModel, quantize
from toolchain.quantize.schemes import SCHEMES, Scheme, find_scheme

__all__ = ["SCHEMES", "QuantizedModel", "Scheme", "find_scheme", "quantize"]
