"""Makes ``goldens.json`` with the float64 reference."""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from runtime_py.executors.base import SeqRow, Step
from runtime_py.executors.reference import ReferenceExecutor
from runtime_py.executors.reference.executor import DECODER_LIMITS
from runtime_py.executors.weights import WeightSource
from runtime_py.program import KV_BLOCK, Program

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

DECODER_TEXTS = tuple(TEXTS[i] for i in (1, 4, 5))
"""Each golden of a language model holds a row of logits, so there are few of them."""

_DIGITS = 8  # significant digits of a stored component; a f32 has seven
_LOGIT_DIGITS = 5  # a vocabulary of them is most of the file
_LONGEST = 128


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
    cases = [(TEXTS[i], ids[i], row) for i, row in zip(kept, output, strict=True)]
    return _document(cases, tolerance, _DIGITS)


def decoder_goldens_json(
    program: Program,
    weights: WeightSource,
    encode: Callable[[Sequence[str]], list[list[int]]],
    tolerance: float,
) -> bytes:
    """The same of a language model: `DECODER_TEXTS` and the logits after their last token.

    A long text's ids are cut to the first `_LONGEST`.
    """
    ids = [text_ids[:_LONGEST] for text_ids in encode(DECODER_TEXTS)]
    limits = replace(DECODER_LIMITS, kv_blocks=-(-_LONGEST // KV_BLOCK))
    executor = ReferenceExecutor.from_weights(program, weights, limits=limits)
    table = array("i", range(limits.kv_blocks))
    cases = []
    for text, text_ids in zip(DECODER_TEXTS, ids, strict=True):
        last = [len(text_ids) - 1]
        step = Step(array("i", text_ids), [SeqRow(0, len(text_ids))], 1, [table], (), last, None)
        (row,) = np.asarray(executor.run(step).output)
        cases.append((text, text_ids, row))
    executor.close()
    return _document(cases, tolerance, _LOGIT_DIGITS)


def _document(
    cases: Sequence[tuple[str, list[int], npt.NDArray[np.float32]]], tolerance: float, digits: int
) -> bytes:
    document = {
        "tolerance": {"cosine": tolerance},
        "cases": [
            {
                "text": text,
                "token_ids": ids,
                "embedding": [float(f"{x:.{digits}g}") for x in row.tolist()],
            }
            for text, ids, row in cases
        ],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
