"""Runs a program op by op over all calibration texts at once.

Executing breadth first lets a linear op's weight be quantized when its turn comes: its
inputs have been computed through the layers quantized before it, and its own error
reaches the layers after it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from runtime_py.executors.base import SeqRow
from runtime_py.executors.reference.cache import PagedCache
from runtime_py.executors.reference.ops import OPS
from runtime_py.executors.reference.state import State
from runtime_py.program import Op, Program, Rows

Floats = npt.NDArray[np.float32]

TOKENS_PER_STEP = 2048


class Stream:
    """The activations of a set of texts as a program proceeds, in float32.

    Args:
        tensors: f32 weight per tensor index; `set_tensor` replaces one.
        batches: token ids of the texts, in packed steps.
        quantize_activations: round the inputs of ops with block weights as the kernels do.
    """

    def __init__(
        self,
        program: Program,
        tensors: Sequence[Floats],
        batches: Sequence[Sequence[Sequence[int]]],
        *,
        quantize_activations: bool,
    ) -> None:
        self._tensors = list(tensors)
        self.states = [
            _state(program, self._tensors, batch, quantize_activations) for batch in batches
        ]
        power = 0.0 if program.is_decoder else -1.5
        self.row_weights = [
            np.concatenate([np.full(len(ids), len(ids) ** power, np.float32) for ids in batch])
            for batch in batches
        ]
        """Per step, f32 [T]: how much a token's error counts.

        A vector is the mean over its n tokens: their errors shrink it by n where they agree
        and by n ** 0.5 where they do not, so a token's squared error counts n ** -1 to
        n ** -2. In between, short texts, which are the hardest, get their due. To a
        language model every token counts alike.
        """

    def set_tensor(self, index: int, value: Floats) -> None:
        self._tensors[index] = value

    def inputs(self, op: Op, name: str = "x") -> Iterator[Floats]:
        """Rows of the op's input slot, one array [T, width] per step."""
        for state in self.states:
            yield state.slots[op.slot(name)]

    def run(self, op: Op, index: int) -> None:
        """Execute op number ``index`` on every step."""
        for state in self.states:
            with np.errstate(all="ignore"):
                out = OPS[op.kind](state, op, index)
                if op.out >= 0:
                    state.slots[op.out] = out


def batched(token_ids: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Texts of similar length together, about `TOKENS_PER_STEP` tokens a step."""
    batches: list[list[Sequence[int]]] = []
    tokens = TOKENS_PER_STEP
    for ids in sorted(token_ids, key=len):
        if tokens + len(ids) > TOKENS_PER_STEP:
            batches.append([])
            tokens = 0
        batches[-1].append(ids)
        tokens += len(ids)
    return batches


def _state(
    program: Program, tensors: list[Any], batch: Sequence[Sequence[int]], quantized: bool
) -> State:
    ids, seqs = array("i"), list[SeqRow]()
    for text in batch:
        seqs.append(SeqRow(len(ids), len(text)))
        ids.extend(text)
    positions = np.concatenate([np.arange(len(text)) for text in batch])
    decoder = program.is_decoder
    state = State(
        np,
        np.float32,
        program,
        tensors,
        np.array(ids, np.int64),
        positions,
        seqs,
        block_tables=[np.array([i]) for i in range(len(seqs))] if decoder else (),
        wanted=np.arange(len(ids)) if decoder else np.zeros(0, np.int64),
        cache=_LayerCache() if decoder else None,
        quantize_activations=quantized,
        observe=None,
    )
    rows = {Rows.TOKENS: len(ids), Rows.SEQS: len(seqs), Rows.PICKED: 0}
    state.slots = [np.zeros((rows[s.rows], s.width), np.float32) for s in program.slots]
    return state


class _LayerCache(PagedCache):
    """Keys and values of the latest layer only: a layer's attention follows its CACHE op.

    A sequence's block table holds its number, and its keys come whole.
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Floats, Floats]] = {}

    def write(self, layer: int, table: Any, start: int, keys: Floats, values: Floats) -> None:
        self._rows[int(table[0])] = (keys, values)

    def read(self, layer: int, table: Any, length: int) -> tuple[Floats, Floats]:
        return self._rows[int(table[0])]
