"""One rule per operator; importing this package fills the table."""

from toolchain.lowering.rules import (
    attention,
    elementwise,
    embedding,
    fused,
    linear,
    norms,
    rotary,
    shapes,
)
from toolchain.lowering.rules.registry import RULES

__all__ = [
    "RULES",
    "attention",
    "elementwise",
    "embedding",
    "fused",
    "linear",
    "norms",
    "rotary",
    "shapes",
]
