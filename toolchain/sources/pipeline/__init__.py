"""The sentence-transformers pipeline around a transformer, read from its files."""

from toolchain.sources.pipeline.read import read_pipeline
from toolchain.sources.pipeline.types import (
    Dense,
    EmbeddingPipeline,
    HeadModule,
    LayerNorm,
    Normalize,
    Pooling,
)

__all__ = [
    "Dense",
    "EmbeddingPipeline",
    "HeadModule",
    "LayerNorm",
    "Normalize",
    "Pooling",
    "read_pipeline",
]
