"""Volery's Python runtime: text embeddings and text generation on WebAssembly, batched.

    import runtime_py as rt

    model = await rt.load("artifacts/minilm")
    vectors = await model.embed(["a", "b"])

Scripts without an event loop use `load_sync`. Importing this package starts no
thread and needs neither numpy nor a backend.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from runtime_py.batching import QueuePolicy, SchedulerConfig, TraceRecorder
from runtime_py.engine import Device
from runtime_py.errors import (
    Aborted,
    AccuracyGate,
    ArtifactCorrupt,
    ArtifactError,
    ArtifactMissing,
    ArtifactUnsupported,
    DeadlineExceeded,
    DeviceLost,
    InvalidInput,
    InvalidType,
    NeverFits,
    NonFinite,
    OutOfMemory,
    Overloaded,
    RequestError,
    TooLong,
    VoleryError,
)
from runtime_py.generation.results import GenerateResult, TextPiece
from runtime_py.info import ModelInfo
from runtime_py.loading import load
from runtime_py.model import Model
from runtime_py.results import EmbedResult

if TYPE_CHECKING:
    from runtime_py.sync import SyncModel

__version__ = "0.1.0"


def load_sync(source: str | os.PathLike[str], **options: Any) -> SyncModel:
    """`load` for scripts: a model whose methods need no ``await``.

    It runs an event loop in a thread of its own. Options and errors are those of `load`.
    """
    from runtime_py.sync import SyncModel  # it needs threads, which Pyodide lacks

    return SyncModel(source, **options)


__all__ = [
    "Aborted",
    "AccuracyGate",
    "ArtifactCorrupt",
    "ArtifactError",
    "ArtifactMissing",
    "ArtifactUnsupported",
    "DeadlineExceeded",
    "Device",
    "DeviceLost",
    "EmbedResult",
    "GenerateResult",
    "InvalidInput",
    "InvalidType",
    "Model",
    "ModelInfo",
    "NeverFits",
    "NonFinite",
    "OutOfMemory",
    "Overloaded",
    "QueuePolicy",
    "RequestError",
    "SchedulerConfig",
    "TextPiece",
    "TooLong",
    "TraceRecorder",
    "VoleryError",
    "__version__",
    "load",
    "load_sync",
]
