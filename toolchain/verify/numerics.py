"""How far a quantized program is from the f32 graph, and whether that is too far."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.errors import AccuracyGate

CORPUS = "standard library docstrings and multilingual sentences, held out"


@dataclass(frozen=True, slots=True)
class NumericsReport:
    """Cosine and component differences over the evaluation texts.

    Attributes:
        backend: what ran the quantized program.
        worst_text: index of the text with the worst cosine.
        gate: least ``worst_cosine`` that the scheme accepts.
    """

    backend: str
    texts: int
    worst_cosine: float
    mean_cosine: float
    max_abs_diff: float
    worst_text: int
    gate: float

    @property
    def passed(self) -> bool:
        return self.worst_cosine >= self.gate  # False for NaN

    def manifest(self) -> dict[str, Any]:
        """The manifest's ``numerics`` object."""
        fields = asdict(self)
        del fields["worst_text"]
        return {"corpus": CORPUS, **fields}

    def enforce(self, scheme: str) -> None:
        """Refuse a result below the gate.

        Raises:
            AccuracyGate: with both numbers.
        """
        if not self.passed:
            raise AccuracyGate(
                f"{scheme} reaches a worst cosine of {self.worst_cosine:.6f} over {self.texts} "
                f"texts, expected at least {self.gate}; nothing was written: use a finer "
                "--quantize, or accept it with --allow-accuracy-loss"
            )


def compare(
    found: npt.NDArray[np.float32],
    expected: npt.NDArray[np.float64],
    *,
    backend: str,
    gate: float,
) -> NumericsReport:
    """Compare rows of ``found`` with rows of ``expected``, both [texts, dimensions]."""
    x = found.astype(np.float64)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(expected, axis=1)
    dots = np.einsum("nd,nd->n", x, expected)
    with np.errstate(invalid="ignore"):  # infinities give NaN, which no gate lets through
        cosines = np.divide(dots, norms, out=np.zeros_like(dots), where=norms > 0)
    worst = int(np.argmin(np.nan_to_num(cosines, nan=-2.0)))
    return NumericsReport(
        backend=backend,
        texts=len(x),
        worst_cosine=float(cosines[worst]),
        mean_cosine=float(cosines.mean()),
        max_abs_diff=float(np.abs(x - expected).max()),
        worst_text=worst,
        gate=gate,
    )
