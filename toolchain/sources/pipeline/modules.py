"""modules.json: which modules follow the transformer, and their parameters.

The pipeline is built from what the files say. A module that the runtime does not have
is an error, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from runtime_py.errors import ArtifactCorrupt, ArtifactMissing, ArtifactUnsupported
from runtime_py.program import Activation, PoolMode
from toolchain.sources.pipeline.types import (
    Array,
    Dense,
    HeadModule,
    LayerNorm,
    Normalize,
    Pooling,
)
from toolchain.sources.source import read_json, read_json_value

TORCH_LAYER_NORM_EPS = 1e-5

# In the order in which sentence-transformers concatenates the legacy flags.
_LEGACY_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_MODES = {
    "cls": PoolMode.CLS,
    "max": PoolMode.MAX,
    "mean": PoolMode.MEAN,
    "mean_sqrt_len_tokens": PoolMode.MEAN_SQRT_LEN,
    "weightedmean": PoolMode.WEIGHTED_MEAN,
    "lasttoken": PoolMode.LAST,
}
_ACTIVATIONS = {
    "Identity": Activation.NONE,
    "Tanh": Activation.TANH,
    "ReLU": Activation.RELU,
    "GELU": Activation.GELU,
    "SiLU": Activation.SILU,
    "Sigmoid": Activation.SIGMOID,
    "Mish": Activation.MISH,
    "ELU": Activation.ELU,
    "LeakyReLU": Activation.LEAKY_RELU,
    "Softplus": Activation.SOFTPLUS,
    "Hardswish": Activation.HARD_SWISH,
}


def read_modules(root: Path, hidden_size: int) -> tuple[tuple[HeadModule, ...], bool, Path]:
    """The modules after the transformer, ``include_prompt``, and the transformer's folder.

    Raises:
        ArtifactMissing: a folder, configuration or weights file is missing.
        ArtifactCorrupt: a file breaks its format or two modules disagree about a width.
        ArtifactUnsupported: a module, pooling mode or activation unknown here.
    """
    entries = _entries(root)
    transformer = root / str(entries[0].get("path", ""))
    modules: list[HeadModule] = []
    include_prompt = True
    width = hidden_size
    for entry in entries[1:]:
        kind = _kind(entry)
        folder = root / str(entry.get("path", ""))
        if kind == "Dropout":
            continue  # does nothing at inference
        if kind not in _READERS:
            raise ArtifactUnsupported(
                f"modules.json names module {entry['type']!r}; supported: "
                f"Transformer, {', '.join(_READERS)}, Dropout; choose a model without it"
            )
        if kind == "Pooling":
            config = read_json(folder / "config.json")
            include_prompt = bool(config.get("include_prompt", True))
        if (kind == "Pooling") != (not modules):
            raise ArtifactUnsupported(
                f"modules.json has {kind} as module {len(modules) + 1}; expected one Pooling "
                "directly after the Transformer"
            )
        module, width = _READERS[kind](folder, width)
        modules.append(module)
    if not modules:
        raise ArtifactUnsupported(
            "modules.json has no Pooling module; expected Transformer, Pooling, ..."
        )
    return tuple(modules), include_prompt, transformer


def _entries(root: Path) -> list[dict[str, Any]]:
    path = root / "modules.json"
    entries = read_json_value(path)
    if (
        not isinstance(entries, list)
        or not entries
        or not all(isinstance(e, dict) and isinstance(e.get("type"), str) for e in entries)
    ):
        raise ArtifactCorrupt(f"{path} is no list of modules with a type; fetch it again")
    first = _kind(entries[0])
    if first != "Transformer":
        raise ArtifactUnsupported(
            f"modules.json starts with module {entries[0]['type']!r}, expected a Transformer"
        )
    return entries


def _kind(entry: dict[str, Any]) -> str:
    name = str(entry["type"])
    return name.rsplit(".", 1)[-1] if name.startswith("sentence_transformers.") else name


def _pooling(folder: Path, width: int) -> tuple[HeadModule, int]:
    path = folder / "config.json"
    config = read_json(path)
    modes = config.get("pooling_mode")
    if modes is None:
        flagged = [mode for flag, mode in _LEGACY_FLAGS.items() if config.get(flag)]
        modes = flagged or ["mean"]  # as sentence-transformers does without any flag
    names = [modes] if isinstance(modes, str) else list(modes)
    unknown = [n for n in names if n not in _MODES]
    if unknown or not names:
        raise ArtifactUnsupported(f"{path}: pooling mode {unknown}; supported: {sorted(_MODES)}")
    declared = config.get("embedding_dimension", config.get("word_embedding_dimension", width))
    if declared != width:
        raise ArtifactCorrupt(f"{path} pools vectors of {declared}, the model's have {width}")
    return Pooling(tuple(_MODES[n] for n in names)), width * len(names)


def _dense(folder: Path, width: int) -> tuple[HeadModule, int]:
    path = folder / "config.json"
    config = read_json(path)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise ArtifactUnsupported(
                f"{path}: {key} is {config[key]!r}, expected 'sentence_embedding'"
            )
    spelled = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = _ACTIVATIONS.get(spelled.rsplit(".", 1)[-1])
    if activation is None or not spelled.startswith("torch."):
        raise ArtifactUnsupported(
            f"{path}: activation {spelled!r}; supported: torch.nn's {', '.join(_ACTIVATIONS)}"
        )
    parts = _weights(folder)
    weight = _part(folder, parts, "linear.weight")
    bias = _part(folder, parts, "linear.bias") if config.get("bias", True) else None
    if (
        weight.ndim != 2
        or weight.shape[1] != width
        or weight.shape[0] != config.get("out_features", weight.shape[0])
        or (bias is not None and bias.shape != weight.shape[:1])
    ):
        raise ArtifactCorrupt(
            f"{folder}: Dense weight {weight.shape} does not take vectors of {width} "
            f"to {config.get('out_features')}"
        )
    return Dense(weight, bias, activation, folder.name), weight.shape[0]


def _layer_norm(folder: Path, width: int) -> tuple[HeadModule, int]:
    parts = _weights(folder)
    weight, bias = (_part(folder, parts, f"norm.{n}") for n in ("weight", "bias"))
    if weight.shape != (width,) or bias.shape != (width,):
        raise ArtifactCorrupt(
            f"{folder}: LayerNorm weight {weight.shape}, expected vectors of {width}"
        )
    return LayerNorm(weight, bias, TORCH_LAYER_NORM_EPS, folder.name), width


def _normalize(folder: Path, width: int) -> tuple[HeadModule, int]:
    return Normalize(), width


_READERS: dict[str, Callable[[Path, int], tuple[HeadModule, int]]] = {
    "Pooling": _pooling,
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": _normalize,
}


def _weights(folder: Path) -> dict[str, Array]:
    """The tensors of a module's folder, as f32."""
    safe, pickled = folder / "model.safetensors", folder / "pytorch_model.bin"
    try:
        if safe.is_file():
            from safetensors.numpy import load_file

            return {k: np.asarray(v, np.float32) for k, v in load_file(safe).items()}
        if pickled.is_file():
            import torch

            # weights_only: a pickle from anywhere must not run code
            state = torch.load(pickled, map_location="cpu", weights_only=True)
            return {k: v.to(torch.float32).numpy() for k, v in state.items()}
    except Exception as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ArtifactCorrupt(
            f"weights in {folder} cannot be read ({reason[:200]}); fetch them again"
        ) from None
    raise ArtifactMissing(
        f"{folder} holds no weights, expected model.safetensors or pytorch_model.bin"
    )


def _part(folder: Path, parts: dict[str, Array], name: str) -> Array:
    if name not in parts:
        raise ArtifactMissing(f"{folder} holds tensors {sorted(parts)}, expected {name!r} too")
    return parts[name]
