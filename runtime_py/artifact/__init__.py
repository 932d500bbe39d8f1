"""Artifacts: reading and checking the files that a model is served from (docs/design.md, 6.2)."""

from runtime_py.artifact.goldens import GoldenCase, Goldens
from runtime_py.artifact.manifest import (
    CostProfile,
    EmbeddingInfo,
    FileEntry,
    Generation,
    LanguageNumerics,
    Limits,
    Manifest,
    Memory,
    ModelInfo,
    Numerics,
    Quantization,
)
from runtime_py.artifact.reader import Artifact
from runtime_py.artifact.weights import ShardedWeights

__all__ = [
    "Artifact",
    "CostProfile",
    "EmbeddingInfo",
    "FileEntry",
    "Generation",
    "GoldenCase",
    "Goldens",
    "LanguageNumerics",
    "Limits",
    "Manifest",
    "Memory",
    "ModelInfo",
    "Numerics",
    "Quantization",
    "ShardedWeights",
]
