"""Texts packed into steps, and a backend run over them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from runtime_py.errors import NonFinite
from runtime_py.executors.base import ExecutorLimits, ModelExecutor, SeqRow, Step

STEP_TOKENS = 1024
"""Tokens of a step when a corpus is run: enough for full speed, little memory."""


def packed_steps(
    token_ids: Sequence[Sequence[int]], limits: ExecutorLimits
) -> Iterator[tuple[list[int], Step]]:
    """Steps of texts of similar length, each with the indices of its texts."""
    budget = min(STEP_TOKENS, limits.max_tokens)
    indices: list[int] = []
    tokens = 0
    for i in sorted(range(len(token_ids)), key=lambda i: len(token_ids[i])):
        n = len(token_ids[i])
        if indices and (tokens + n > budget or len(indices) == limits.max_seqs):
            yield indices, _step(token_ids, indices)
            indices, tokens = [], 0
        indices.append(i)
        tokens += n
    if indices:
        yield indices, _step(token_ids, indices)


def run_all(
    executor: ModelExecutor, width: int, token_ids: Sequence[Sequence[int]]
) -> npt.NDArray[np.float32]:
    """One vector per text, f32 [texts, width], in the order of ``token_ids``.

    Raises:
        NonFinite: the backend reports NaN or infinity for a text.
    """
    out = np.zeros((len(token_ids), width), np.float32)
    for indices, step in packed_steps(token_ids, executor.limits):
        result = executor.run(step)
        out[indices] = np.asarray(result.output)
        if any(result.statuses):
            bad = indices[next(i for i, s in enumerate(result.statuses) if s)]
            raise NonFinite(
                f"{executor.name} computes NaN or infinity for text {bad}; the model's weights "
                "overflow in this quantization: try --quantize f32"
            )
    return out


def _step(token_ids: Sequence[Sequence[int]], indices: Sequence[int]) -> Step:
    ids, seqs = array("i"), list[SeqRow]()
    for i in indices:
        seqs.append(SeqRow(len(ids), len(token_ids[i])))
        ids.extend(token_ids[i])
    return Step(ids, seqs)
