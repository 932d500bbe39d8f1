"""How fast a model is under load, and what its steps cost: behind ``toolchain bench``."""

from toolchain.bench.clients import Client, DecoderClient, EncoderClient
from toolchain.bench.closed_loop import Window
from toolchain.bench.measure import Row, measure
from toolchain.bench.profile import measure_profile

__all__ = [
    "Client",
    "DecoderClient",
    "EncoderClient",
    "Row",
    "Window",
    "measure",
    "measure_profile",
]
