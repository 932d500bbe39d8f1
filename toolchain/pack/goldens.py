"""Makes ``goldens.json`` with the float64 reference."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence

import numpy as np

from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.weights import WeightSource
from runtime_py.program import Program

TEXTS = (
    "",
    "A flock of starlings turns above the pier at dusk.",
    "Where can I buy a ticket, and what does it cost?",
    "def mean(values): return sum(values) / len(values)",
    "Die Fähre nach Ærø legt um 17:45 Uhr ab – 東京は雨です。",
    "The harbour was built twice: first of oak, in a hurry, by people who needed fish more "
    "than they needed beauty; and then, after the great storm had taken every plank of it, "
    "of grey stone, slowly, by their grandchildren, who still needed fish but had begun to "
    "like the look of the water between two arms of wall.",
)
"""An empty text, short ones, code, other scripts, and one of several dozen tokens."""

_DIGITS = 8  # significant digits of a stored component; a f32 has seven


def goldens_json(
    program: Program,
    weights: WeightSource,
    encode: Callable[[Sequence[str]], list[list[int]]],
    tolerance: float,
) -> bytes:
    """`TEXTS`, their ids and their embeddings as the stored weights give them in float64.

    Args:
        encode: texts to ids, special tokens added, cut to the model's limit.
        tolerance: least cosine that a backend must reach.
    """
    ids = encode(TEXTS)
    kept = [i for i, text_ids in enumerate(ids) if text_ids]
    packed, seqs = array("i"), list[SeqRow]()
    for i in kept:
        seqs.append(SeqRow(len(packed), len(ids[i])))
        packed.extend(ids[i])
    executor = ReferenceExecutor.from_weights(program, weights)
    output = np.asarray(executor.run(Step(packed, seqs)).output)
    cases = [
        {
            "text": TEXTS[i],
            "token_ids": ids[i],
            "embedding": [float(f"{x:.{_DIGITS}g}") for x in row.tolist()],
        }
        for i, row in zip(kept, output, strict=True)
    ]
    document = {"tolerance": {"cosine": tolerance}, "cases": cases}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
