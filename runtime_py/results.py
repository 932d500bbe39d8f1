"""From the backend's rows to what the caller asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from runtime_py._compat import numpy_or_none
from runtime_py.errors import InvalidInput

DType = Literal["float32", "float16"]

_EPS = 1e-12  # torch.nn.functional.normalize's


@dataclass(frozen=True, slots=True)
class EmbedResult:
    """Vectors with the facts about how they were made.

    Attributes:
        vectors: what `Model.embed` returns: numpy [n, dimensions], or [dimensions] for a
            single text. Without numpy a list of f32 memoryviews, or one.
        token_counts: tokens of each text that were embedded, special tokens included.
        truncated: whether each text was longer than the model's limit.
        queue_ms: from the first submission to the start of its first step.
        device_ms: time of the steps that carried the texts, inside the backend.
        steps: how many those were.
        batch_seqs, batch_tokens: the size of the largest of them, other requests included.
        cached_tokens: tokens that were not computed again; 0 for encoders.
    """

    vectors: Any
    token_counts: list[int]
    truncated: list[bool]
    queue_ms: float
    device_ms: float
    steps: int
    batch_seqs: int
    batch_tokens: int
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class VectorFormat:
    """How a caller wants vectors.

    Attributes:
        width: columns of the backend's rows.
        dimensions: columns to keep, from the left (Matryoshka models).
        normalize: scale what is kept to length 1.
        dtype: of the result.
    """

    width: int
    dimensions: int
    normalize: bool
    dtype: DType

    def rows(self, output: bytearray) -> Any:
        """All vectors of ``output``, f32 [n, width]: numpy [n, dimensions] or a list.

        A row's result does not depend on the other rows.
        """
        numpy = numpy_or_none()
        if numpy is None:
            return self._plain_rows(output)
        rows = numpy.frombuffer(output, numpy.float32).reshape(-1, self.width)
        if self.dimensions < self.width:
            rows = numpy.ascontiguousarray(rows[:, : self.dimensions])
        if self.normalize:
            wide = rows.astype(numpy.float64)
            norms = numpy.sqrt(numpy.sum(wide * wide, axis=1, keepdims=True))
            rows = (wide / numpy.maximum(norms, _EPS)).astype(numpy.float32)
        return rows.astype(numpy.float16) if self.dtype == "float16" else rows

    def _plain_rows(self, output: bytearray) -> list[memoryview[float]]:
        if self.dtype == "float16":
            raise InvalidInput("dtype 'float16' needs numpy, which is not installed; use 'float32'")
        floats = memoryview(output).cast("f")
        rows = []
        for start in range(0, len(floats), self.width):
            row = floats[start : start + self.dimensions]
            if self.normalize:
                scale = 1.0 / max(math.sqrt(math.fsum([x * x for x in row])), _EPS)
                for i, x in enumerate(row):
                    row[i] = x * scale
            rows.append(row)
        return rows
