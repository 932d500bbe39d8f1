"""``goldens.json``: inputs with the outputs that every backend must reproduce at load.

The embeddings are computed in float64 on the quantized program when the artifact is
written. A backend whose output misses them is refused instead of serving plausible
nonsense.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from runtime_py.artifact.manifest import GOLDENS
from runtime_py.artifact.strict_json import Record, parse
from runtime_py.errors import ArtifactCorrupt

MAX_GOLDENS_BYTES = 16 << 20
_MAX_CASES = 64


@dataclass(frozen=True, slots=True)
class GoldenCase:
    text: str
    token_ids: tuple[int, ...]
    embedding: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Goldens:
    """``tolerance`` is the least cosine between a backend's vector and the golden one.

    A decoder's ``embedding`` is the row of logits after the last token.
    """

    tolerance: float
    cases: tuple[GoldenCase, ...]

    @classmethod
    def parse(cls, data: bytes, *, width: int, vocab_size: int, max_positions: int) -> Goldens:
        """Check and decode ``goldens.json`` against the program's sizes.

        Raises:
            ArtifactCorrupt: a field is missing or does not fit the program.
        """
        g = Record(parse(data, GOLDENS, MAX_GOLDENS_BYTES), GOLDENS)
        tolerance = g.record("tolerance").number("cosine")
        if not 0 < tolerance <= 1:
            raise g.error("tolerance.cosine", tolerance, "a number in (0, 1]")
        cases = []
        for r in g.records("cases", _MAX_CASES):
            text = r.value("text")
            if not isinstance(text, str):
                raise r.error("text", text, "a text")
            ids = r.integers("token_ids", 0, vocab_size - 1, max_positions or 1 << 20)
            embedding = r.numbers("embedding", width)
            if not ids or len(embedding) != width:
                raise r.error("embedding", len(embedding), f"{width} numbers for >= 1 token")
            cases.append(GoldenCase(text, ids, embedding))
        if not cases:
            raise g.error("cases", [], "at least one case")
        return cls(tolerance, tuple(cases))

    def check(self, outputs: Sequence[Sequence[float]], backend: str) -> float:
        """The worst cosine between ``outputs`` (one vector per case) and the goldens.

        Raises:
            ArtifactCorrupt: a vector misses the tolerance, or is not finite.
        """
        if len(outputs) != len(self.cases):
            raise ArtifactCorrupt(
                f"{backend} returned {len(outputs)} vectors for {len(self.cases)} goldens"
            )
        worst = 1.0
        for case, output in zip(self.cases, outputs, strict=True):
            value = cosine(output, case.embedding)
            if not value >= self.tolerance:  # also NaN
                raise ArtifactCorrupt(
                    f"{backend} computes golden text {case.text[:40]!r} with cosine {value:.6f}, "
                    f"expected at least {self.tolerance}; the model is refused: use another "
                    "backend or report this device"
                )
            worst = min(worst, value)
        return worst


def cosine(a: Sequence[float], b: Sequence[float]) -> float:
    """Cosine of two vectors in float64; NaN when either is zero or not finite."""
    if len(a) != len(b):
        return math.nan
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    norms = math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b))
    return dot / norms if norms > 0 and math.isfinite(dot) and math.isfinite(norms) else math.nan
