"""The f32 graph of a language model, run by ONNX Runtime: the truth that it is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runtime_py.errors import ArtifactError


class GraphLogits:
    """Logits of a graph without a key-value cache; called with the ids of one text.

    Args:
        path: the ONNX file; its inputs are ids, and any of mask and positions.

    Raises:
        ArtifactError: ONNX Runtime refuses the graph.
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # its errors share no base class but Exception
            raise ArtifactError(
                f"ONNX Runtime cannot load {path}: {str(error).splitlines()[0]}"
            ) from None
        self._inputs = {i.name for i in self._session.get_inputs()}
        names = [o.name for o in self._session.get_outputs()]
        self._output = "logits" if "logits" in names else names[0]

    def __call__(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """f32 [tokens, vocabulary]."""
        ids = np.array([token_ids], np.int64)
        feeds = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "position_ids": np.arange(len(token_ids))[None],
        }
        held = {name: value for name, value in feeds.items() if name in self._inputs}
        (logits,) = self._session.run([self._output], held)
        rows: npt.NDArray[np.float32] = logits[0]
        return rows
