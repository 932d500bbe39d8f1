"""A step as two flat arrays, so that one call carries it from Python to JavaScript.

Mirrors `workers/src/python/step-words.js`, which has the layout.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain

from runtime_py.executors.base import SamplingRow, Step

_U32 = 0xFFFFFFFF


def step_words(step: Step, *, is_decoder: bool) -> array[int]:
    """The integers of ``step``."""
    words = array(
        "i",
        (
            len(step.token_ids),
            len(step.seqs),
            len(step.copies),
            len(step.wanted),
            step.sampling is not None,
        ),
    )
    words += step.token_ids
    words.extend(chain.from_iterable(step.seqs))
    if is_decoder:
        for table in step.block_tables:
            words.append(len(table))
            words += table
        words.extend(chain.from_iterable(step.copies))
        words.extend(step.wanted)
    return words


def sampling_numbers(rows: Sequence[SamplingRow]) -> array[float]:
    """The numbers and lists of the sampling rows, all as f64, which holds each exactly."""
    numbers = array("d")
    for row in rows:
        mask = array("I", row.mask) if row.mask is not None else ()
        numbers.extend(
            (
                row.temperature,
                row.top_k,
                row.top_p,
                row.min_p,
                row.repetition_penalty,
                row.presence_penalty,
                row.frequency_penalty,
                row.top_logprobs,
                row.seed & _U32,
                row.seed >> 32,
                row.position,
                3 * len(row.penalized),
                2 * len(row.bias),
                len(mask),
            )
        )
        numbers.extend(chain.from_iterable(row.penalized))
        numbers.extend(chain.from_iterable(row.bias))
        numbers.extend(mask)
    return numbers
