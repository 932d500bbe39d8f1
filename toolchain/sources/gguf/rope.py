"""Rope scaling: from GGUF's keys, or from the factors that replace them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.errors import ArtifactUnsupported
from toolchain.sources.gguf.exact import float_rows
from toolchain.sources.gguf.reader import GgufFile

# Llama 3.1 and later differ only in the factor; the file keeps no trace of the others
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def rope_scaling(gguf: GgufFile, head_dim: int, theta: float) -> dict[str, Any] | None:
    """``rope_scaling`` of the Hugging Face configuration, None for plain rope.

    Args:
        gguf: the file.
        head_dim: width of a head.
        theta: base of the frequencies.

    Raises:
        ArtifactUnsupported: a kind of scaling that is unknown, or factors that no known
            kind explains.
    """
    if "rope_freqs.weight" in gguf.tensors:
        return _llama3(gguf, head_dim, theta)
    kind = gguf.value("{arch}.rope.scaling.type", str)
    factor = gguf.value("{arch}.rope.scaling.factor", float)
    if factor is None:
        factor = gguf.value("{arch}.rope.scale_linear", float, 1.0)
        kind = kind or "linear"
    original = gguf.value("{arch}.rope.scaling.original_context_length", int)
    if kind in (None, "none", "linear"):
        return {"rope_type": "linear", "factor": factor} if factor != 1.0 else None
    if kind == "yarn":
        scaling = {
            "rope_type": "yarn",
            "factor": factor,
            "original_max_position_embeddings": original,
            "attention_factor": gguf.value("{arch}.rope.scaling.attn_factor", float),
            "beta_fast": gguf.value("{arch}.rope.scaling.yarn_beta_fast", float),
            "beta_slow": gguf.value("{arch}.rope.scaling.yarn_beta_slow", float),
        }
        return {key: value for key, value in scaling.items() if value is not None}
    raise ArtifactUnsupported(
        f"{gguf.path}: rope scaling {kind!r} is not supported, expected none, linear, yarn or "
        "llama3's factors; choose another model"
    )


def llama3_factors(head_dim: int, theta: float, factor: float) -> npt.NDArray[np.float64]:
    """What Llama 3 divides each of the head_dim / 2 frequencies by (float64)."""
    freq = theta ** -(np.arange(0, head_dim, 2) / head_dim)
    turns = _LLAMA3["original_max_position_embeddings"] * freq / (2 * math.pi)
    low, high = _LLAMA3["low_freq_factor"], _LLAMA3["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def _llama3(gguf: GgufFile, head_dim: int, theta: float) -> dict[str, Any]:
    found = float_rows(gguf, "rope_freqs.weight", slice(None)).reshape(-1).astype(np.float64)
    factor = round(float(found.max()), 3)
    fits = len(found) == head_dim // 2 and math.isfinite(factor) and factor >= 1
    if not fits or not np.allclose(found, llama3_factors(head_dim, theta, factor), rtol=1e-3):
        raise ArtifactUnsupported(
            f"{gguf.path}: the factors in rope_freqs.weight are not those of Llama 3 "
            f"(8192 positions, 1 to 4 turns); choose another model"
        )
    return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
